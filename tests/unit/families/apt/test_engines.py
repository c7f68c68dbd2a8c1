# SPDX-License-Identifier: Apache-2.0
"""Engines without running them: which there are, whether the host has them, what is taken away."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.families.apt.bootstrap import ENGINES, TRACES
from imagebuilder.families.apt.engines.dib import ELEMENTS
from imagebuilder.families.apt.engines.request import remove_excluded
from imagebuilder.families.apt.family import APT
from imagebuilder.families.protocol import Packages
from imagebuilder.families.tool import Tool, check_path, check_tool, find_tool
from imagebuilder.families.unpacked import remove_traces
from imagebuilder.lock.verified import Pool
from imagebuilder.package_managers import PACKAGE_MANAGERS
from imagebuilder.process import run
from imagebuilder.steps.packages import BootstrapStep
from imagebuilder.workspace import Workspace

TOOL = Tool("frob", "frobnicate", "apt-get install frob", least=24)


def put(path: Path, text: str = "") -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place first on PATH for a program, frobnicate, that is not there yet."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "frobnicate"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace that nothing runs in."""
    (tmp_path / "u").mkdir()
    return Workspace(tmp_path, (), "u", 0, tmp_path / "log", Pool(tmp_path, tmp_path))


def says(program: Path, words: str) -> None:
    """Make the program one that says these words."""
    program.write_text(f"#!/bin/sh\n{words}\n")
    program.chmod(0o755)


def test_a_base_may_name_exactly_the_engines_there_are() -> None:
    assert PACKAGE_MANAGERS["apt"].engines == tuple(ENGINES)
    assert {engine.tool.engine for engine in ENGINES.values()} == set(ENGINES)


def test_the_engine_and_the_version_of_its_code_are_inputs() -> None:
    step = BootstrapStep(APT, Packages("x", "amd64", (), (), 0), "debian-x", "mkosi", epoch=0)
    for name, engine in ENGINES.items():
        told = name if engine.version == 1 else f"{name} {engine.version}"
        assert replace(step, engine=name).inputs() == {**step.inputs(), "engine": told}
    assert ENGINES["debootstrap"].version > 1


def test_a_missing_program_is_said_with_the_command_that_brings_it(program: Path) -> None:
    assert not program.exists()
    with pytest.raises(HostError) as caught:
        check_tool(TOOL)
    (fault,) = caught.value.faults
    assert fault.what == "the base has `engine: frob`, but frobnicate is not installed"
    assert fault.hint == "run apt-get install frob"


@pytest.mark.parametrize(
    "words", ["echo frobnicate 24", "echo frobnicate 27.1~devel", "echo 100.0"]
)
def test_a_program_that_is_new_enough(program: Path, words: str) -> None:
    says(program, words)
    assert find_tool(TOOL) == program
    assert check_tool(TOOL) in words


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("echo frobnicate 14", "has version 14, but at least 24 is needed"),
        ("echo frobnicate 9.99", "has version 9.99, but at least 24 is needed"),
        ("echo no idea", "does not print its version"),
        ("echo frobnicate 24; exit 1", "does not print its version"),
    ],
)
def test_a_program_that_will_not_do(program: Path, words: str, what: str) -> None:
    says(program, words)
    with pytest.raises(HostError, match=what) as caught:
        check_tool(TOOL)
    assert caught.value.faults[0].hint == "run apt-get install frob"


def test_a_program_beside_our_python_comes_first(program: Path) -> None:
    says(program, "echo 24")
    own = Path(sys.executable).with_name("pip")
    assert find_tool(replace(TOOL, program="pip")) == own


@pytest.mark.parametrize("name", ["two words", "a:b", "a,b", "a$b"])
def test_a_folder_that_the_program_would_split_is_refused(name: str) -> None:
    check_path(TOOL, Path("/srv/state-1.0/work~/x_y"))
    with pytest.raises(HostError, match="cannot work in a folder of this name"):
        check_path(TOOL, Path("/srv") / name)


def test_what_dpkg_would_have_left_out_goes_with_its_folders_and_links(
    workspace: Workspace,
) -> None:
    tree = workspace.tree
    put(tree / "usr/share/man/man1/less.1.gz")
    put(tree / "usr/share/man/de/man1/less.1.gz")
    put(tree / "usr/share/doc/less/copyright")
    put(tree / "usr/share/doc/less/examples/deep/a")
    (tree / "usr/share/man/man1/more.1.gz").symlink_to("less.1.gz")
    put(tree / "etc/alternatives/README")
    (tree / "etc/alternatives/pager.1.gz").symlink_to("/usr/share/man/man1/less.1.gz")
    (tree / "etc/alternatives/pager").symlink_to("/usr/bin/less")
    (tree / "etc/other").symlink_to("/usr/share/man/man1/less.1.gz")
    remove_excluded(workspace, ("/usr/share/man/*/*", "/usr/share/doc/*/[!c]*"))
    left = {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}
    assert left == {
        "usr/share/doc/less/copyright", "etc/alternatives/README", "etc/alternatives/pager",
        "etc/other",
    }  # fmt: skip
    assert (tree / "usr/share/man/man1").is_dir()
    assert (tree / "usr/share/man/de").is_dir()
    assert not (tree / "usr/share/man/de/man1").exists()
    assert not (tree / "usr/share/doc/less/examples").exists()


def test_nothing_is_left_out_where_nothing_is_said(workspace: Workspace) -> None:
    put(workspace.tree / "usr/share/man/man1/less.1.gz")
    remove_excluded(workspace, ())
    assert (workspace.tree / "usr/share/man/man1/less.1.gz").exists()


def test_traces_of_engines_go_and_the_packages_stay(workspace: Workspace) -> None:
    tree = workspace.tree
    for name in ("dev", "run", "tmp"):
        put(tree / name / "trace")
    for name in TRACES:
        put(tree / name)
    put(tree / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    (tree / "etc/machine-id").chmod(0o444)
    put(tree / "etc/resolv.conf", "nameserver 192.0.2.1\n")
    (tree / "usr/lib32").mkdir(parents=True)
    (tree / "lib32").symlink_to("usr/lib32")
    put(tree / "usr/libx32/ld-linux-x32.so.2")
    (tree / "libx32").symlink_to("usr/libx32")
    remove_traces(tree, TRACES)
    left = {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}
    assert left == {"etc/machine-id", "usr/libx32/ld-linux-x32.so.2"}
    assert (tree / "libx32").is_symlink()
    assert not (tree / "lib32").is_symlink()
    machine_id = tree / "etc/machine-id"
    assert (machine_id.read_text(), machine_id.stat().st_mode & 0o777) == ("", 0o644)


def test_the_resolvers_own_link_stays(workspace: Workspace) -> None:
    for name in ("dev", "run", "tmp", "etc"):
        (workspace.tree / name).mkdir()
    link = workspace.tree / "etc/resolv.conf"
    link.symlink_to("../run/systemd/resolve/stub-resolv.conf")
    remove_traces(workspace.tree, TRACES)
    assert link.is_symlink()


@pytest.mark.parametrize("to_root", [False, True])
@pytest.mark.parametrize(
    "name",
    ["etc", "etc/apt", "etc/machine-id", "var", "var/lib", "usr", "dev", "run", "tmp", "proc"],
)
def test_nothing_of_the_host_goes(
    tmp_path: Path, workspace: Workspace, name: str, *, to_root: bool
) -> None:
    """A maintainer script may put a link anywhere, and the builder cleans up as root."""
    host, tree = tmp_path / "host", workspace.tree
    for each in (*TRACES, "machine-id", "apt/sources.list", "lib/dpkg/available", "hostname"):
        put(host / each, "kept")
    for folder in ("etc", "var", "usr", "dev", "run", "tmp", "proc"):
        (host / folder / "lib32").mkdir(parents=True, exist_ok=True)
    for path in [*host.rglob("*")]:
        path.chmod(0o700)
    before = {path: path.stat().st_mode for path in host.rglob("*")}
    for folder in ("etc", "var", "usr", "dev", "run", "tmp"):
        (tree / folder).mkdir()
    target = tree / name
    if target.is_dir():
        target.rmdir()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(host if to_root else host / name)
    remove_traces(tree, TRACES)
    assert {path: path.stat().st_mode for path in host.rglob("*")} == before
    assert all(path.read_text() for path in host.rglob("*") if path.is_file())


def test_a_link_that_stays_in_the_root_is_followed(workspace: Workspace) -> None:
    tree = workspace.tree
    (tree / "run").mkdir()
    put(tree / "var/tmp/trace")
    (tree / "tmp").symlink_to("/var/tmp")
    remove_traces(tree, TRACES)
    assert [*(tree / "var/tmp").iterdir()] == []


def test_the_element_can_be_run(tmp_path: Path) -> None:
    scripts = [path for path in ELEMENTS.rglob("*") if path.is_file() and path.name[0].isdigit()]
    assert len(scripts) == 5
    for script in [*scripts, *(ELEMENTS / "bin").iterdir()]:
        assert script.stat().st_mode & 0o111 == 0o111, script
    sudo = ELEMENTS / "bin/sudo"
    assert run([sudo, "-E", "WORD=x y", "sh", "-c", 'echo "$WORD" "$1"', "sh", "z"]).stdout == (
        "x y z\n"
    )
    assert run([sudo, "touch", tmp_path / "made"]).status == 0
    assert (tmp_path / "made").exists()
