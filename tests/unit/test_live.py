# SPDX-License-Identifier: Apache-2.0
"""Live systems: what they are told, their boot script, their names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.live.entries import (
    Live,
    check_name,
    needed_memory,
    render_boot_script,
    seed_files,
)
from imagebuilder.live.iso import (
    CASPER,
    DEBIAN_LIVE,
    LiveIso,
    find_casper,
    find_debian_live,
    read_iso,
)
from imagebuilder.live.seed import (
    load_autoinstall,
    load_operator_keys,
    render_hook,
    render_user_data,
)
from imagebuilder.process import run
from imagebuilder.recipe.positions import parse_document
from imagebuilder.settings import Settings

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJf0ss4dWmZJqV2Q8m0Y3hX7F0dq9rF5c8oYb1VvK2aN it's me"
ISO = LiveIso(Path("x.iso"), 2_000_000_000, "Ubuntu", CASPER, "/casper/vmlinuz", "/casper/initrd")


def a_live(kind: str = CASPER, *, autoinstall: bool = False) -> Live:
    """A live system as add_live() records it."""
    return Live("jammy", "Ubuntu-Server 22.04.5", kind, "x.iso", 2_000_000_000, "0" * 64,
                autoinstall, "1" * 64, 5 * 1024**3, "2026-11-21T00:00:00Z")  # fmt: skip


def test_user_data_lets_keys_in_and_installs_nothing() -> None:
    told = parse_document(render_user_data([KEY]).encode(), "user-data").value
    assert told == {"disable_root": False, "ssh_authorized_keys": [KEY]}
    assert render_user_data([KEY]).startswith("#cloud-config\n")


def test_casper_boot_script() -> None:
    lines = render_boot_script(a_live()).splitlines()
    assert lines[0] == "#!ipxe"
    (kernel,) = [line for line in lines if line.startswith("kernel ")]
    words = kernel.split()
    assert words[:4] == ["kernel", "--name", "vmlinuz", "${http}/live/jammy/vmlinuz"]
    assert "initrd=initrd" in words
    assert "url=${http}/live/jammy/jammy.iso" in words
    assert "ds=nocloud-net;s=${http}/live/jammy/" in words
    assert "cloud-config-url=/dev/null" in words
    assert "autoinstall" not in words
    assert words[-4:] == ["${node-args}", "||", "goto", "failed"]
    assert "initrd --name initrd ${http}/live/jammy/initrd || goto failed" in lines
    assert all("{" not in line.replace("${", "") for line in lines)


def test_autoinstall_is_a_word_of_its_own_and_said_aloud() -> None:
    script = render_boot_script(a_live(autoinstall=True))
    assert " autoinstall ds=nocloud-net" in script
    assert "INSTALLS to the disk" in script


def test_debian_boot_script() -> None:
    script = render_boot_script(a_live(DEBIAN_LIVE))
    assert "boot=live components ip=dhcp fetch=${http}/live/jammy/filesystem.squashfs" in script
    assert "hooks=${http}/live/jammy/hook" in script
    assert "nocloud" not in script


def test_every_label_of_the_script_is_there() -> None:
    script = render_boot_script(a_live())
    wanted = set(re.findall(r"goto (\w+)", script))
    assert wanted == set(re.findall(r"^:(\w+)$", script, re.M))


def test_hook_is_a_sound_script_that_quotes_keys() -> None:
    hook = render_hook([KEY])
    run(["sh", "-n"], stdin=hook.encode())
    assert shlex.quote(KEY) in hook


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("autoinstall: {version: 1}\n", "a.yaml:1:1: the first line must be #cloud-config"),
        ("#cloud-config\nhostname: x\n", "autoinstall: the key is missing"),
        ("#cloud-config\nautoinstall: 7\n", "a.yaml:2:14: autoinstall: must be a mapping"),
        ("#cloud-config\nautoinstall:\n  version: 2\n", "a.yaml:3:12: autoinstall.version: must"),
        ("#cloud-config\nautoinstall: {\n", "a.yaml:3:1: not valid YAML"),
        ("#cloud-config\na: 1\na: 2\n", "a.yaml:3:1: a: the key is already on line 2"),
        ("", "a.yaml:1:1: is empty"),
    ],
)
def test_autoinstall_faults_have_a_position(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        load_autoinstall(path)


def test_autoinstall_is_passed_on_as_written(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("#cloud-config\n# mine\nautoinstall:\n  version: 1\n")
    assert load_autoinstall(path) == path.read_text()
    with pytest.raises(InputError, match="does not exist"):
        load_autoinstall(tmp_path / "none.yaml")


def test_keys_come_from_the_option_the_site_or_the_home(tmp_path: Path) -> None:
    home, site = tmp_path / "home", tmp_path / "site.yaml"
    (home / ".ssh").mkdir(parents=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "own", "-f", home / ".ssh/id_a"])
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "other", "-f", tmp_path / "other"])
    settings = Settings(tmp_path, tmp_path, tmp_path, site)
    (own,) = load_operator_keys(settings, None, home)
    assert own.endswith(" own")
    site.write_text(f"ssh-keys: [{tmp_path / 'other.pub'}]\n")
    (from_site,) = load_operator_keys(settings, None, home)
    assert from_site.endswith(" other")
    assert load_operator_keys(settings, home / ".ssh/id_a.pub", home) == (own,)


def test_no_key_and_private_keys_are_refused(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path, tmp_path, tmp_path / "site.yaml")
    with pytest.raises(InputError, match="no ssh key is configured") as caught:
        load_operator_keys(settings, None, tmp_path)
    assert "--ssh-key" in str(caught.value)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"])
    with pytest.raises(InputError, match="is a private key"):
        load_operator_keys(settings, tmp_path / "id", tmp_path)


@pytest.mark.parametrize("name", ["", "..", ".x", "-x", "a b", "a/b", "a;b", "ä", "x" * 65, "a\n"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InputError, match="is not a name: "):
        check_name(name)


def test_debian_takes_the_kernel_with_its_own_initrd() -> None:
    listed = (
        "/live", "/live/filesystem.squashfs", "/live/vmlinuz-6.1.0-10-amd64",
        "/live/vmlinuz-6.1.0-9-amd64", "/live/initrd.img-6.1.0-10-amd64",
    )  # fmt: skip
    found = find_debian_live(Path("d.iso"), 1, "d", listed)
    assert found is not None
    assert (found.kernel, found.initrd) == (listed[2], listed[4])
    assert find_debian_live(Path("d.iso"), 1, "d", listed[2:]) is None
    assert find_casper(Path("d.iso"), 1, "d", listed) is None


def test_debian_has_no_autoinstall() -> None:
    debian = LiveIso(Path("d.iso"), 1, "d", DEBIAN_LIVE, "/live/k", "/live/i", "/live/s")
    with pytest.raises(InputError, match="does not support autoinstall"):
        seed_files(debian, "d", (), "#cloud-config\n")
    assert set(seed_files(debian, "d", [KEY], "")) == {"hook"}


def test_memory_is_twice_the_iso_and_more() -> None:
    assert needed_memory(ISO) > 2 * ISO.size


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is not an ISO image"), (b"x" * 40_000, "is not an ISO image")],
)
def test_not_an_iso(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.iso"
    path.write_bytes(content)
    with pytest.raises(ImagebuilderError, match=said):
        read_iso(path)
    with pytest.raises(InputError, match="does not exist"):
        read_iso(tmp_path / "none.iso")
    with pytest.raises(InputError, match="is not a file"):
        read_iso(tmp_path)
