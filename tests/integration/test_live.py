# SPDX-License-Identifier: Apache-2.0
"""Live ISOs, really made, into a tree: every layout, every fault, and nothing half there."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imagebuilder.cli.live import live_app
from imagebuilder.digest import digest_of_file
from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.live.entries import add_live, list_lives, remove_live
from imagebuilder.process import run
from imagebuilder.settings import Settings
from imagebuilder.tree import Tree, make_tree
from imagebuilder.ui import Ui
from tests.commands import context_of

pytestmark = pytest.mark.root

KEYS = ("ssh-ed25519 AAAA me",)
CASPER = {"casper/vmlinuz": b"K" * 5000, "casper/initrd": b"I" * 9000, "casper/a.squashfs": b"S"}
DEBIAN = {
    "live/vmlinuz-6.1.0-25-amd64": b"K",
    "live/initrd.img-6.1.0-25-amd64": b"I",
    "live/filesystem.squashfs": b"S" * 70_000,
}


def make_iso(path: Path, files: dict[str, bytes]) -> Path:
    """An ISO with these files."""
    top = path.with_suffix(".d")
    for name, content in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    run(["xorriso", "-as", "mkisofs", "-quiet", "-V", "Ubuntu-Server 22.04.5", "-J", "-R",
         "-o", path, top])  # fmt: skip
    return path


def loop_folder(iso: Path, name: bytes) -> None:
    """Have a folder in the top folder of an ISO be that top folder (ECMA-119, 8.4 and 9.1)."""
    content = bytearray(iso.read_bytes())
    where = content[16 * 2048 + 158 : 16 * 2048 + 166]  # both orders of bytes
    top = int.from_bytes(where[:4], "little") * 2048
    record = content.index(bytes([len(name)]) + name, top, top + 2048) - 32
    content[record + 2 : record + 10] = where
    iso.write_bytes(content)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty netboot tree."""
    return make_tree(tmp_path / "tree")


@pytest.fixture
def ui() -> Ui:
    """Progress that nobody reads."""
    return Ui(io.StringIO())


def contents(tree: Tree) -> list[str]:
    """What live/ and work/ hold."""
    return sorted(p.name for top in ("http/live", "work") for p in (tree.path / top).iterdir())


def test_casper(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    iso = make_iso(tmp_path / "ubuntu-22.04.5-live-server-amd64.iso", CASPER)
    added = add_live(tree, iso, ui, keys=KEYS)
    name = "ubuntu-22.04.5-live-server-amd64"
    assert added.new
    assert added.folder == tree.http / "live" / name
    assert sorted(p.name for p in added.folder.iterdir()) == [
        "SHA256SUMS", "boot.ipxe", "initrd", "live.json", "meta-data", f"{name}.iso", "user-data",
        "vendor-data", "vmlinuz",
    ]  # fmt: skip
    assert (added.folder / "vmlinuz").read_bytes() == CASPER["casper/vmlinuz"]
    assert (added.folder / f"{name}.iso").samefile(iso), "a hard link on one file system"
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=added.folder)
    assert {oct(p.stat().st_mode & 0o777) for p in added.folder.iterdir()} == {"0o644"}
    assert [live.name for live in list_lives(tree)] == [name]
    assert list_lives(tree)[0].title == "Ubuntu-Server 22.04.5"
    assert contents(tree) == [name], "nothing is left in work/"
    menu = tree.http / "menu.ipxe"
    assert f"chain --autofree ${{http}}/live/{name}/boot.ipxe" in menu.read_text()
    remove_live(tree, name, ui)
    assert name not in menu.read_text()


def test_debian_live_is_taken_out_of_its_iso(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    added = add_live(tree, make_iso(tmp_path / "d.iso", DEBIAN), ui, keys=KEYS)
    assert sorted(p.name for p in added.folder.iterdir()) == [
        "SHA256SUMS", "boot.ipxe", "filesystem.squashfs", "hook", "initrd", "live.json", "vmlinuz",
    ]  # fmt: skip
    assert (added.folder / "filesystem.squashfs").read_bytes() == DEBIAN["live/filesystem.squashfs"]


def test_an_iso_only_its_owner_may_read_is_copied(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    iso = make_iso(tmp_path / "u.iso", CASPER)
    iso.chmod(0o600)
    served = add_live(tree, iso, ui, keys=KEYS).folder / "u.iso"
    assert not served.samefile(iso)
    assert served.stat().st_mode & 0o777 == 0o644
    assert digest_of_file(served) == digest_of_file(iso)


def test_the_same_again_is_nothing_and_another_is_refused(
    tmp_path: Path, tree: Tree, ui: Ui
) -> None:
    iso = make_iso(tmp_path / "u.iso", CASPER)
    first = add_live(tree, iso, ui, keys=KEYS)
    before = {p.name: p.stat().st_mtime_ns for p in first.folder.iterdir()}
    again = add_live(tree, iso, ui, keys=KEYS)
    assert not again.new
    assert again.live == first.live
    other = make_iso(tmp_path / "other.iso", {**CASPER, "casper/vmlinuz": b"other"})
    with pytest.raises(InputError, match="u already exists, with another ISO"):
        add_live(tree, other, ui, name="u", keys=KEYS)
    with pytest.raises(InputError, match="with other keys or autoinstall"):
        add_live(tree, iso, ui, keys=("ssh-ed25519 BBBB you",))
    assert {p.name: p.stat().st_mtime_ns for p in first.folder.iterdir()} == before
    add_live(tree, other, ui, name="v", keys=KEYS)
    assert contents(tree) == ["u", "v"]


def test_remove(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    iso = make_iso(tmp_path / "u.iso", CASPER)
    add_live(tree, iso, ui, keys=KEYS)
    remove_live(tree, "u", ui)
    assert contents(tree) == []
    assert iso.is_file(), "the person's own file stays"
    with pytest.raises(InputError, match="no live system named u"):
        remove_live(tree, "u", ui)


def test_an_iso_without_a_live_system(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    iso = make_iso(
        tmp_path / "x.iso", {"boot/grub/grub.cfg": b"", "install/vmlinuz": b"", "md5": b""}
    )
    with pytest.raises(
        InputError, match="contains no supported live system, only boot, install, md5"
    ) as caught:
        add_live(tree, iso, ui, keys=KEYS)
    assert "casper/vmlinuz" in str(caught.value)
    half = make_iso(tmp_path / "h.iso", {"casper/vmlinuz": b"", "live/vmlinuz": b""})
    with pytest.raises(InputError, match="contains no supported live system, only casper, live"):
        add_live(tree, half, ui, keys=KEYS)
    assert contents(tree) == []


def test_a_cut_off_iso(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    iso = make_iso(tmp_path / "u.iso", CASPER)
    os.truncate(iso, iso.stat().st_size - 2048)
    with pytest.raises(InputError, match=r"is truncated: \d+ bytes of \d+"):
        add_live(tree, iso, ui, keys=KEYS)


def test_an_iso_whose_folders_are_damaged(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    iso = make_iso(tmp_path / "u.iso", CASPER)
    with iso.open("r+b") as stream:
        stream.seek(17 * 2048)
        stream.write(b"\xff" * 2048 * 60)
    with pytest.raises(InputError) as caught:
        add_live(tree, iso, ui, keys=KEYS)
    assert str(iso) in str(caught.value)
    assert contents(tree) == []


def test_a_disk_without_space(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    iso = make_iso(tmp_path / "u.iso", CASPER)
    with iso.open("ab") as stream:  # a hole, larger than any disk of a test machine
        stream.truncate(10 * 10**12)
    iso.chmod(0o600)  # so that it would be copied
    with pytest.raises(HostError, match=r"no space left: 10 TB needed"):
        add_live(tree, iso, ui, keys=KEYS)
    assert contents(tree) == []


def test_kill_leaves_all_or_nothing(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    iso = make_iso(tmp_path / "u.iso", {**CASPER, "casper/big": os.urandom(4_000_000)})
    iso.chmod(0o600)  # so that it is copied
    code = (
        "import io; from pathlib import Path; from imagebuilder.live.entries import add_live;"
        "from imagebuilder.tree import make_tree; from imagebuilder.ui import Ui;"
        f"add_live(make_tree(Path({str(tree.path)!r})), Path({str(iso)!r}), Ui(io.StringIO()),"
        " keys=('ssh-ed25519 AAAA me',))"
    )
    folder = tree.http / "live" / "u"
    killed = 0
    for attempt in range(12):
        child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])
        time.sleep(0.15 + attempt * 0.02)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        if folder.exists():
            run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=folder)
            remove_live(tree, "u", ui)
    assert killed, "no attempt was cut short"
    add_live(tree, iso, ui, keys=KEYS)
    assert contents(tree) == ["u"]


def test_the_commands(tmp_path: Path) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", tmp_path / "key"])
    iso = make_iso(tmp_path / "u.iso", CASPER)
    settings = Settings(tmp_path, tmp_path, tmp_path, tmp_path / "site.yaml")

    def call(*words: str) -> tuple[int, str, str]:
        said = io.StringIO()
        given = context_of(settings, said)
        done = CliRunner().invoke(live_app, [*words, "--tree", str(tmp_path / "tree")], obj=given)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, said.getvalue()

    key = ("--ssh-key", f"{tmp_path / 'key'}.pub")
    assert call("list")[1].startswith("no live systems yet")
    status, out, said = call("add", str(iso), *key)
    assert (status, out) == (0, f"{tmp_path}/tree/http/live/u\n")
    assert "nodes need 2 GiB of memory" in said
    user_data = (tmp_path / "tree/http/live/u/user-data").read_text()
    assert (tmp_path / "key.pub").read_text().strip() in user_data
    assert "nothing to do" in call("add", str(iso), *key)[2]
    (listed,) = json.loads(call("list", "--json")[1])
    assert (listed["name"], listed["autoinstall"]) == ("u", False)
    assert "runs in memory" in call("list")[1]
    (tmp_path / "auto.yaml").write_text("#cloud-config\nautoinstall:\n  version: 1\n")
    install = ("--autoinstall", str(tmp_path / "auto.yaml"), "--name", "install", "--json")
    assert json.loads(call("add", str(iso), *install)[1])["autoinstall"] is True
    script = (tmp_path / "tree/http/live/install/boot.ipxe").read_text()
    assert " autoinstall " in script
    assert "url=${http}/live/install/install.iso" in script
    assert call("remove", "u")[0] == 0
    assert [row["name"] for row in json.loads(call("list", "--json")[1])] == ["install"]


def test_a_damaged_entry_says_what_to_do(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    added = add_live(tree, make_iso(tmp_path / "u.iso", CASPER), ui, keys=KEYS)
    entry = added.folder / "live.json"
    entry.write_text(json.dumps({"name": "u"}))
    with pytest.raises(ImagebuilderError, match="imagebuilder live remove u"):
        list_lives(tree)
    remove_live(tree, "u", ui)


@pytest.mark.parametrize("layout", [CASPER, DEBIAN])
@pytest.mark.parametrize("what", ["link", "fifo", "device", "folder"])
def test_an_iso_cannot_give_away_a_file_of_the_host(
    tmp_path: Path, tree: Tree, ui: Ui, layout: dict[str, bytes], what: str
) -> None:
    """Everybody on the nodes' network would be served what a link in it leads to."""
    secret = tmp_path / "shadow"
    secret.write_text("secret")
    secret.chmod(0o600)
    kernel = tmp_path / "evil.d" / next(name for name in layout if "vmlinuz" in name)
    kernel.parent.mkdir(parents=True)
    match what:
        case "link":
            kernel.symlink_to(secret)
        case "fifo":
            os.mkfifo(kernel)
        case "device":
            os.mknod(kernel, 0o600 | stat.S_IFBLK, os.makedev(7, 0))
        case _:
            kernel.mkdir()
            (kernel / "more").symlink_to(secret)
    others = {name: content for name, content in layout.items() if "vmlinuz" not in name}
    with pytest.raises(InputError, match="in it is not a file"):
        add_live(tree, make_iso(tmp_path / "evil.iso", others), ui, keys=KEYS)
    assert (secret.stat().st_mode & 0o777, contents(tree)) == (0o600, [])


def test_names_in_an_iso_are_read_whatever_they_are(tmp_path: Path, tree: Tree, ui: Ui) -> None:
    odd = {f"casper/{name}": b"" for name in ("a'b", "a\nb", 'a"b', "a b", "\\", "-x", "\x1b[2J")}
    add_live(tree, make_iso(tmp_path / "odd.iso", CASPER | odd), ui, keys=KEYS)


@pytest.mark.parametrize(
    ("owner", "mode", "linked"),
    [(0, 0o644, True), (4321, 0o644, False), (0, 0o666, False), (0, 0o664, False)],
)
def test_who_may_write_an_iso_cannot_change_what_nodes_boot(
    tmp_path: Path, tree: Tree, ui: Ui, *, owner: int, mode: int, linked: bool
) -> None:
    iso = make_iso(tmp_path / "ubuntu.iso", CASPER)
    os.chown(iso, owner, 0)
    iso.chmod(mode)
    served = add_live(tree, iso, ui, keys=KEYS).folder / "ubuntu.iso"
    assert served.samefile(iso) is linked
    assert (served.stat().st_uid, served.stat().st_mode & 0o777) == (0, 0o644)


def test_an_iso_with_a_folder_in_itself_is_refused_in_time(
    tree: Tree, tmp_path: Path, ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_iso(tmp_path / "loop.iso", CASPER)
    loop_folder(path, b"CASPER")
    monkeypatch.setattr("imagebuilder.live.iso.LIST_S", 1.0)
    with pytest.raises(InputError, match="cannot be read as an ISO image: not within 1 s"):
        add_live(tree, path, ui, keys=KEYS)
    assert list((tree.path / "work").iterdir()) == []
