# SPDX-License-Identifier: Apache-2.0
"""An ordinary user of the builder cannot reach the setuid programs of images."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.image.formats import export_image
from imagebuilder.process import run
from imagebuilder.publish.find import open_tree
from imagebuilder.publish.publish import publish
from imagebuilder.rootkind import Format
from imagebuilder.settings import Settings, load_settings
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.store.state import PRIVATE, make_state, open_store
from imagebuilder.store.workplace import workplace
from imagebuilder.tree import PRIVATE as OF_TREE
from imagebuilder.tree import Tree, make_tree
from tests.commands import load_program
from tests.integration.published import UNTESTED, make_image, quiet
from tests.workshop import CHECKOUT

pytestmark = pytest.mark.root
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user of the host may enter."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="imagebuilder-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def settings(place: Path) -> Settings:
    for name in ("recipes", "overlays"):
        (place / "project" / name).mkdir(parents=True)
    made = load_settings(
        {"HOME": os.fspath(place)}, project=place / "project", state=place / "state"
    )
    make_state(made.state)
    return made


@pytest.fixture
def store(settings: Settings) -> Store:
    return make_store(settings.state / "store")


@pytest.fixture
def image(store: Store, settings: Settings) -> ImageRef:
    """An image with a setuid program."""
    with workplace(settings.state, "making") as work:
        return make_image(store, work, 1)


@pytest.fixture
def released(store: Store, image: ImageRef, place: Path) -> Tree:
    """A tree with its release."""
    tree = make_tree(place / "netboot")
    publish(store, image, tree, quiet(), channel="candidate", formats=(), untested=UNTESTED)
    return tree


def setuid_files(place: Path, *become: str) -> list[str]:
    """The setuid programs that a user finds below `place`."""
    words = [*become, "find", os.fspath(place), "-perm", "/6000", "-type", "f", "-executable"]
    return run(words, check=False).stdout.splitlines()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_everything(place: Path) -> None:
    """Make the folders what an older version made them."""
    for name in PRIVATE:
        (place / "state" / name).chmod(0o755)
    for name in OF_TREE:
        (place / "netboot" / name).chmod(0o755)


def test_nobody_reaches_a_setuid_program(
    place: Path, store: Store, image: ImageRef, released: Tree
) -> None:
    export_image(store, image, place / "exported", quiet())
    found = setuid_files(place)
    assert {Path(name).relative_to(place).parts[0] for name in found} == {
        "state", "netboot", "exported",
    }  # fmt: skip
    assert setuid_files(place, *NOBODY) == []
    # What servers read as somebody else is open to them.
    release = released.release(image.release)
    run([*NOBODY, "cat", release / "vmlinuz", release / "boot.ipxe"])
    run([*NOBODY, "ls", released.tftp, released.http / "nodes"])


def test_what_an_older_version_left_open_is_closed(
    place: Path, settings: Settings, released: Tree
) -> None:
    open_everything(place)
    assert setuid_files(place, *NOBODY)
    open_store(settings)
    open_tree(released.path)
    assert setuid_files(place, *NOBODY) == []
    open_everything(place)
    make_state(settings.state)
    make_tree(released.path)
    assert setuid_files(place, *NOBODY) == []
    assert {mode(settings.state / name) for name in PRIVATE} == {0o700}
    assert mode(place / "state") == 0o755  # the pages of nights are for everybody


def test_a_packed_export_is_for_everybody(place: Path, store: Store, image: ImageRef) -> None:
    export_image(store, image, place / "exported", quiet(), packed=Format.SQUASHFS)
    assert mode(place / "exported") == 0o755
    assert setuid_files(place / "exported") == []


@pytest.mark.parametrize("packed", [None, *Format])
def test_a_packed_export_is_the_callers_and_the_store_stays_roots(
    place: Path, store: Store, image: ImageRef, packed: Format | None
) -> None:
    def owners(top: Path) -> set[tuple[int, int]]:
        return {(p.lstat().st_uid, p.lstat().st_gid) for p in (top, *top.rglob("*"))}

    before, folder = owners(store.path), place / "made/exported"
    export_image(store, image, folder, quiet(), packed=packed, owner=(4321, 8765))
    assert owners(store.path) == before
    if packed:
        assert owners(folder) == {(4321, 8765)}
    else:
        assert (4321, 8765) not in owners(folder)
        assert mode(folder) == 0o700


COMMANDS = (
    ["images"],
    ["show", "demo"],
    ["diff", "demo", "demo"],
    ["export", "demo", "out"],
    ["sbom", "demo"],
    ["fsck"],
    ["fsck", "--json"],
    ["gc", "--dry-run"],
    ["gc", "--releases", "--dry-run"],
    ["releases"],
    ["releases", "--verify"],
    ["drift"],
    ["nodes", "show", "n1"],
    ["nodes", "list"],
    ["nodes", "add", "n1", "--mac", "52:54:00:77:00:01"],
    ["nodes", "set", "n1", "--profile", "demo"],
    ["nodes", "remove", "n1"],
    ["live", "remove", "one"],
    ["prove", "demo"],
    ["check", "demo"],
    ["test", "demo"],
    ["report", "demo"],
    ["shell", "demo"],
    ["publish", "demo"],
    ["publish", "demo", "--to", "ssh://nobody.example/srv/netboot"],
    ["promote", "demo"],
    ["rollback", "demo"],
    ["keep", "demo"],
    ["unpublish", "demo"],
    ["receive", "--have"],
    ["serve", "--interface", "eth9"],
    ["serve", "--uninstall"],
    ["profiles", "--proof"],
    ["why", "demo", "/etc/passwd"],
    ["rollout", "demo"],
    ["adopt", "52:54:00:77:00:01", "--profile", "demo"],
)
# They are about recipes and the host; what they need of the store is asked for where it is read.
ANYBODY = {
    "profiles",
    "schema",
    "doctor",
    "setup",
    "init",
    "lock",
    "plan",
    "build",
    "nightly",
    "hardware",
    "token",
}
# They reach nodes as who types them: with their ssh keys, which root does not have.
OF_NODES = {
    "status", "explain", "up", "down", "restart", "run", "configure", "inventory", "discover",
    "console", "web", "act", "read",
}  # fmt: skip


# One process for all: it has loaded the program as root, who may read it wherever it lies.
AS_NOBODY = """
import contextlib, io, json, os, pkgutil, sys
import imagebuilder
for module in pkgutil.walk_packages(imagebuilder.__path__, "imagebuilder."):
    if not module.name.startswith("imagebuilder.steps.") and "__main__" not in module.name:
        __import__(module.name)
from imagebuilder.cli.program import run
"".encode("utf-8-sig"), "".encode("idna")  # loaded at their first use
os.setgroups([]), os.setgid(65534), os.setuid(65534)
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["imagebuilder", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run()
    print(json.dumps([words, status, out.getvalue(), err.getvalue()]))
"""


def test_every_command_is_looked_at() -> None:
    asked = {words[0] for words in COMMANDS} | ANYBODY | OF_NODES
    assert asked == {*load_program().commands}


def test_an_ordinary_user_is_told_that_root_is_needed(settings: Settings, released: Tree) -> None:
    env = {
        "IMAGEBUILDER_SUDO": "never",
        "IMAGEBUILDER_PROJECT": os.fspath(settings.project),
        "IMAGEBUILDER_STATE": os.fspath(settings.state),
        "IMAGEBUILDER_TREE": os.fspath(released.path),
        "HOME": os.fspath(settings.project),
    }
    done = run([sys.executable, "-c", AS_NOBODY], env=env, stdin=json.dumps(COMMANDS).encode())
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(COMMANDS)
    for words, status, out, err in results:
        assert (status, out) == (3, ""), (words, err)
        typed = re.escape(shlex.join(words))
        pattern = rf"error: .*root.*\n  hint: .*sudo.* {typed}\n"
        assert re.fullmatch(pattern, err), (words, err)


def test_an_ordinary_user_asks_nodes_with_their_own_keys(
    settings: Settings, released: Tree
) -> None:
    node = {"macs": ["52:54:00:77:00:01"], "profile": "demo", "channel": "candidate"}
    released.nodes_file.write_text(json.dumps({"nodes": {"n1": node}}))
    released.consoles("n1").mkdir(parents=True)
    (released.serve / "consoles").chmod(0o700)
    env = {
        "IMAGEBUILDER_SUDO": "never",
        "IMAGEBUILDER_PROJECT": os.fspath(settings.project),
        "IMAGEBUILDER_TREE": os.fspath(released.path),
        "HOME": os.fspath(settings.project),
    }
    asked = (
        ["status"],
        ["rollout", "status"],
        ["explain", "n1"],
        ["inventory", "--list"],
        ["restart", "n1"],
        ["discover"],
        ["console", "n1"],
    )
    done = run([sys.executable, "-c", AS_NOBODY], env=env, stdin=json.dumps(asked).encode())
    results = {words[0]: said for words, *said in map(json.loads, done.stdout.splitlines())}
    assert {name: said[0] for name, said in results.items()} == {
        "status": 1, "rollout": 0, "explain": 1, "inventory": 0, "restart": 1, "discover": 0,
        "console": 3,
    }, results  # fmt: skip
    assert "n1    unknown" in results["status"][1]
    assert "only root can read the log of its console" in results["explain"][1]
    assert "error: the console of n1 is readable by root only" in results["console"][2]
    assert "its NIC never requested an address from this boot server" in results["explain"][1]


def test_root_leaves_nothing_in_a_checkout_or_home_of_somebody_else(place: Path) -> None:
    checkout, home = place / "checkout", place / "home"
    for name in ("imagebuilder", "scripts", "recipes", "overlays", "pxe"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / name, checkout / name, symlinks=True, ignore=ignored)
    home.mkdir()
    run(["chown", "-R", "65534:65534", place])
    env = {
        "HOME": os.fspath(home), "XDG_CACHE_HOME": os.fspath(home / ".cache"),
        "PYTHONPATH": os.fspath(checkout), "PYTHONDONTWRITEBYTECODE": "",
        "IMAGEBUILDER_PROJECT": os.fspath(checkout), "IMAGEBUILDER_STATE": "/nonexistent",
    }  # fmt: skip
    for words in (["profiles"], ["images"], ["doctor"]):
        argv = [sys.executable, "-m", "imagebuilder.cli.main", *words]
        run(argv, env=env, cwd=checkout, check=False)
    assert run(["find", place, "-uid", "0"]).stdout == ""
