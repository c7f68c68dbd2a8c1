# SPDX-License-Identifier: Apache-2.0
"""Every key of an overlay, in the root it leads to."""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.digest import Json
from imagebuilder.process import run
from tests.integration.changes import add_file, change_overlay, change_yaml, linked, make_quick
from tests.workshop import Workshop

pytestmark = pytest.mark.root

SIX = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274"
REQUIREMENTS = f"six==1.17.0 \\\n    --hash=sha256:{SIX}\n"
SCRIPT = """\
#!/usr/bin/python3
import os, sys
with open("/etc/tested/script", "w") as told:
    print(os.getcwd(), os.environ["SOURCE_DATE_EPOCH"], oct(os.umask(0)), sys.argv, file=told)
    print(open("/etc/tested/plain").read(), file=told)
"""
OVERLAY: dict[str, Json] = {
    "requires": ["ssh"],
    "vars": {
        "greeting": {"type": "string", "description": "What to say", "default": "hello"},
        "loud": {"type": "boolean", "description": "Whether to shout", "default": False},
    },
    "packages": ["tree", {"name": "cowsay", "when": "loud"}],
    "files": {
        "/etc/tested/secret": {"mode": "0600", "owner": "tester", "group": "testers"},
        "/etc/tested/never": {"when": "loud"},
    },
    "scripts": [{"run": "scripts/10-told"}],
    "python": [{"path": "/opt/tested", "requirements": "python/requirements.txt"}],
    "groups": [{"name": "testers", "gid": 4242}],
    "users": [
        {"name": "tester", "uid": 4321, "home": "/srv/tester", "shell": "/bin/sh",
         "groups": ["testers", "video"], "comment": "{{ greeting }}"},
        {"name": "robot", "system": True},
        {"name": "compute", "uid": 1000, "comment": "Compute",
         "groups": ["render", "video", "systemd-journal"]},
    ],
    "units": {"enable": ["tested.service"], "disable": ["llama-server.service"],
              "mask": ["getty@tty2.service"]},
    "modules": {"load": ["tcp_bbr"], "blacklist": ["pcspkr"], "options": {"nfs": "enable_ino64=1"}},
    "sysctl": {"vm.swappiness": 7, "net.core.default_qdisc": "fq"},
    "cmdline": ["tested={{ greeting | length }}", {"name": "loud=1", "when": "loud"}],
    "prune": ["/usr/share/bash-completion/*", "/usr/share/zsh"],
}  # fmt: skip


@pytest.fixture(scope="module")
def shop(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """`generic` with the overlay `tested` behind all others."""
    made = linked(workshop, tmp_path_factory.mktemp("overlay"))
    project = made.project
    make_quick(project)
    change_yaml(
        project / "recipes/generic.yaml",
        {"overlays": ["tested"], "vars": {"greeting": "good day"}, "boot": {"cmdline": ["last=1"]}},
    )
    folder = change_overlay(project, "tested", **OVERLAY)
    for name, text in (("python/requirements.txt", REQUIREMENTS), ("scripts/10-told", SCRIPT)):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    add_file(project, "tested", "etc/tested/plain", "plain {{ greeting }}", 0o755)
    add_file(
        project, "tested", "etc/tested/rendered.j2", "{{ greeting }}{% if loud %}!{% endif %}\n"
    )
    add_file(project, "tested", "etc/tested/secret", "s")
    add_file(project, "tested", "etc/tested/never", "n")
    (folder / "files/etc/tested/link").symlink_to("plain")
    add_file(project, "tested", "usr/lib/systemd/system/tested.service", UNIT)
    made("build", "generic")
    return made


UNIT = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


@pytest.fixture(scope="module")
def root(shop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its root."""
    folder = tmp_path_factory.mktemp("overlay-root") / "generic"
    shop("export", "generic", os.fspath(folder))
    return folder / "root"


def test_files(root: Path) -> None:
    tested = root / "etc/tested"
    assert (tested / "plain").read_text() == "plain {{ greeting }}", "only .j2 is a template"
    assert stat.S_IMODE((tested / "plain").stat().st_mode) == 0o755
    assert (tested / "rendered").read_text() == "good day\n"
    assert os.fspath((tested / "link").readlink()) == "plain"
    secret = (tested / "secret").stat()
    assert (stat.S_IMODE(secret.st_mode), secret.st_uid, secret.st_gid) == (0o600, 4321, 4242)
    names = {path.name for path in tested.iterdir()}
    assert names == {"plain", "rendered", "link", "secret", "script"}


def test_script_runs_in_the_builds_world(shop: Workshop, root: Path) -> None:
    epoch = json.loads(shop("show", "generic", "--json").stdout)["epoch"]
    told = (root / "etc/tested/script").read_text().splitlines()
    assert told[0] == f"/ {epoch} 0o22 ['/run/imagebuilder/script']"
    assert told[1] == "plain {{ greeting }}"
    assert (root / "etc/tested/script").stat().st_uid == 0


def test_accounts(root: Path) -> None:
    users = (root / "etc/passwd").read_text().splitlines()
    assert "tester:x:4321:4321:good day:/srv/tester:/bin/sh" in users
    robot = next(line for line in users if line.startswith("robot:"))
    assert int(robot.split(":")[2]) < 1000
    assert (root / "srv/tester").stat().st_uid == 4321
    groups = (root / "etc/group").read_text()
    assert "testers:x:4242:tester\n" in groups
    assert len([line for line in users if line.startswith("compute:")]) == 1


def test_units(root: Path) -> None:
    system = root / "etc/systemd/system"
    wanted = system / "multi-user.target.wants"
    assert os.fspath((wanted / "tested.service").readlink()).endswith("/tested.service")
    assert not (wanted / "llama-server.service").is_symlink()
    assert os.fspath((system / "getty@tty2.service").readlink()) == "/dev/null"


def test_kernel_settings(root: Path) -> None:
    assert (root / "etc/modules-load.d/tested.conf").read_text().splitlines()[1:] == ["tcp_bbr"]
    options = (root / "etc/modprobe.d/tested.conf").read_text().splitlines()[1:]
    assert options == ["blacklist pcspkr", "options nfs enable_ino64=1"]
    sysctl = (root / "etc/sysctl.d/60-tested.conf").read_text().splitlines()[1:]
    assert sorted(sysctl) == ["net.core.default_qdisc = fq", "vm.swappiness = 7"]


def test_cmdline(shop: Workshop, root: Path) -> None:
    words = json.loads(shop("show", "generic", "--json").stdout)["boot"]["cmdline"]
    assert words[-2:] == ["tested=8", "last=1"]
    assert "loud=1" not in words
    assert (root.parent / "cmdline").read_text().split() == words


def test_prune(root: Path) -> None:
    assert list((root / "usr/share/bash-completion").iterdir()) == []
    assert not (root / "usr/share/zsh").exists()


def test_packages_by_condition(shop: Workshop) -> None:
    layers = json.loads(shop("show", "generic", "--json").stdout)["layers"]
    added = next(layer for layer in layers if layer["title"] == "packages tested")
    assert list(added["inputs"]["packages"]) == ["tree"]


def compiled(folder: Path) -> Iterator[int]:
    """The flags of every .pyc below a folder."""
    for path in folder.rglob("*.pyc"):
        with path.open("rb") as stream:
            yield struct.unpack("<4xI", stream.read(8))[0]


def test_python_environment(shop: Workshop, root: Path) -> None:
    said = shop(
        "shell", "generic", "-c",
        "/opt/tested/bin/python -c 'import six, sys; print(six.__version__, sys.prefix)'; "
        "python3 -c 'import six' 2>&1 | tail -n 1",
    ).stdout.splitlines()  # fmt: skip
    assert said == ["1.17.0 /opt/tested", "ModuleNotFoundError: No module named 'six'"]
    assert set(compiled(root / "opt/tested")) == {1}
    wheels = json.loads(shop("show", "generic", "--json").stdout)["wheels"]
    assert wheels == [{"name": "six", "version": "1.17.0", "sha256": SIX, "path": "/opt/tested"}]
    sbom = (root.parent / "sbom.spdx.json").read_text()
    assert "pkg:pypi/six@1.17.0" in sbom


def test_environment_is_the_same_wherever_it_is_made(shop: Workshop, tmp_path: Path) -> None:
    """The lock and the pool are enough, without any network, and when is not part of it."""
    again = linked(shop, tmp_path)
    layers = json.loads(shop("show", "generic", "--json").stdout)
    titles = [layer["title"] for layer in layers["layers"]]
    above = layers["layers"][titles.index("python tested /opt/tested") :]
    top = again.state / "store/refs/heads"
    for layer in above:
        (top / "layer" / layer["digest"]).unlink()
    run(["rm", "-r", top / "image"])
    done = again("build", "generic", "--offline", http_proxy="http://127.0.0.1:9")
    assert "python tested /opt/tested: done in" in done.stderr
    after = json.loads(again("show", "generic", "--json").stdout)
    assert after["root"]["commit"] == layers["root"]["commit"]
