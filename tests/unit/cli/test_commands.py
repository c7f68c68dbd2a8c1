# SPDX-License-Identifier: Apache-2.0
"""What every command has, and what it ends with."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.core import TyperGroup, TyperOption

import imagebuilder
from imagebuilder import __version__
from imagebuilder.cli.commands import COMMANDS
from imagebuilder.image.types import encode_image
from imagebuilder.inventory import Collected
from imagebuilder.process import run
from tests.commands import load_program
from tests.images import IMAGE
from tests.unit.cli.conftest import Complete, Program

NAMES = sorted(name for name, (panel, place) in COMMANDS.items() if panel and place.endswith(name))
# They do something, or print a document: everything else lists, and programs may want to read it.
WITHOUT_JSON = {
    "configure",
    "export",
    "init",
    "inventory",
    "sbom",
    "schema",
    "serve",
    "setup",
    "shell",
    "web",
}
# Each takes a tenth of a second or more, which every command and every completion would wait for.
HEAVY = {"jinja2", "pydantic", "ruamel", "testinfra"}


@pytest.mark.parametrize(
    ("module", "found"), [("cli.program", set()), ("recipe.load", {"jinja2", "pydantic", "ruamel"})]
)
def test_the_command_line_imports_nothing_heavy(module: str, found: set[str]) -> None:
    """What a command works with is imported when it runs."""
    lines = f"import sys, imagebuilder.{module}; print(*sys.modules)"
    assert HEAVY & {*run([sys.executable, "-c", lines]).stdout.split()} == found


def test_a_sandbox_starts_with_few_modules() -> None:
    """A build starts dozens: each of these takes it 2 to 10 ms."""
    lines = "import sys; sys.path.append(sys.argv[1]); import imagebuilder.sandbox.init; "
    lines += "print(*sys.modules)"
    top = Path(imagebuilder.__file__).parents[1]
    found = {*run([sys.executable, "-I", "-S", "-c", lines, top]).stdout.split()}
    assert "ctypes" in found
    slow = {"contextlib", "enum", "json", "pathlib", "re", "signal", "socket", "typing"}
    assert slow & found == set()


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example(program: Program, name: str) -> None:
    for option in ("--help", "-h"):
        done = program(name, option)
        assert done.status == 0
        assert f"Example: imagebuilder {name}" in done.stdout
        assert done.stderr == ""
    assert ("--json" in done.stdout) == (name not in WITHOUT_JSON)


def test_help_says_what_an_option_is_without_a_value(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert "Host name. [default: the next number]" in program("adopt", "--help").stdout
    shown = program("nightly", "--help").stdout
    assert "its stable release stays, and the other profiles continue." in shown


def test_help_names_no_types_of_python(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ((), ("gc",), ("nodes",), ("nodes", "set"), ("rollout", "start"), ("nightly",)):
        shown = program(*words, "--help").stdout
        assert [line for line in shown.splitlines() if line.startswith("│") and "<" in line] == []
        assert "…" not in shown
    assert "--ignore-unknown-clients" in program("gc", "--help").stdout


def test_help_says_one_default() -> None:
    told = [one for one in find_options(load_program()) if "[default:" in (one.help or "")]
    assert len(told) > 10
    twice = [one.name for one in told if one.show_default and one.default not in ("", None)]
    assert twice == []


def find_options(group: object) -> Iterator[TyperOption]:
    """The options of all commands of a group."""
    assert isinstance(group, TyperGroup)
    for command in group.commands.values():
        yield from (one for one in command.params if isinstance(one, TyperOption))
        if isinstance(command, TyperGroup):
            yield from find_options(command)


def test_help_lists_every_command(program: Program) -> None:
    done = program("--help")
    assert done.status == 0
    for name in NAMES:
        assert f" {name} " in done.stdout
    assert "IMAGEBUILDER_STATE" in done.stdout
    assert "--install-completion" in done.stdout


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (("plan",), "plan [OPTIONS] PROFILE "),
        (("shell",), "shell [OPTIONS] [IMAGE] "),
        (("fsck",), "fsck [OPTIONS] [TREE] "),
        (("drift",), "drift [OPTIONS] [NODE|PROFILE]... "),
        (("run",), "run [OPTIONS] NODES -- COMMAND... "),
        (("configure",), "configure [OPTIONS] NODES PLAYBOOK... "),
        (("hardware", "list"), "hardware list [OPTIONS] [WORD]... "),
    ],
)
def test_the_usage_line_has_brackets_only_around_what_may_be_left_out(
    program: Program, words: tuple[str, ...], usage: str
) -> None:
    assert f"Usage: imagebuilder {usage}" in program(*words, "--help").stdout


def test_help_needs_no_project(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGEBUILDER_PROJECT", "/nonexistent")
    assert program("build", "--help").status == 0
    assert program("--version").stdout == f"imagebuilder {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Usage: imagebuilder"),
        (
            ("images", "--nope"),
            "error: images: unknown option --nope\n  hint: run imagebuilder",
        ),
        (("build", "--lock"), "build: unknown option --lock\n  hint: did you mean --locked?"),
        (("zzz",), 'error: unknown command "zzz"\n  hint: run imagebuilder --help for usage\n'),
        (("buidl",), 'error: unknown command "buidl"\n  hint: did you mean "build"?\n'),
        (("nodes", "ad"), 'error: nodes: unknown command "ad"\n  hint: did you mean "add"?\n'),
        (("recieve",), 'error: unknown command "recieve"\n  hint: run imagebuilder --help for'),
        (("help",), 'error: unknown command "help"\n  hint: did you mean --help?\n'),
        (("build",), "error: build: PROFILE is missing\n  hint: run imagebuilder build --help for"),
        (("nodes", "add", "n1"), "error: nodes add: --mac is missing\n"),
        (("images", "x", "y"), "error: images: unexpected argument: x y\n"),
        (("gc", "--keep", "0"), "error: gc --keep: must be at least 1\n"),
        (("gc", "--keep", "x"), "error: gc --keep: must be a whole number\n"),
        (("gc", "--keep"), "error: gc: '--keep' needs a value\n"),
        (
            ("token", "add", "a", "--role", "x"),
            "error: token add --role: 'x' is not one of ",
        ),
        (("configure", "a", "/nope"), "error: configure PLAYBOOK...: file '/nope' does not exist"),
        (("shell",), "error: shell: name an image, or a failed build with --failed\n"),
        (("build", "generix", "--locked"), 'no profile named "generix"\n  hint: did you mean "gen'),
        (("build", "../generic"), 'no profile named "../generic"'),
        (("build", ""), 'no profile named ""'),
        (("build", "grand", "--base", "trixie"), '--base: no base named "trixie"'),
        (("plan", "grand", "--engine", "mmdebstrp"), 'did you mean "mmdebstrap"?'),
        (("lock", "grand.trixie"), '"grand.trixie": no base or engine named "trixie"'),
        (
            ("--project", "/nonexistent", "profiles"),
            "/nonexistent: has no recipes/\n  hint: run imagebuilder init DIR",
        ),
        (("fsck", "/srv/netboot"), "error: fsck: TREE needs --tree\n"),
        (("build", "generic.yaml"), 'named "generic.yaml"\n  hint: did you mean "generic"?\n'),
        (("plan", "recipes/grand.yaml"), 'ipes/grand.yaml"\n  hint: did you mean "grand"?\n'),
        (("fsck",), "there is no store yet\n  hint: run imagebuilder build"),
    ],
)
def test_wrong_input_ends_with_two(program: Program, words: tuple[str, ...], said: str) -> None:
    done = program(*words)
    assert done.status == 2
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["build", "lock", "plan"])
def test_another_base_is_a_profile_of_its_own(
    program: Program, project: Path, command: str
) -> None:
    (project / "recipes/bases/thin.yaml").write_text("distribution: debian\n")
    done = program(command, "grand", "--base", "thin", "--engine", "debootstrap")
    assert done.status == 2
    assert "using profile grand.thin.debootstrap\n" in done.stderr
    assert "recipes/bases/thin.yaml:1:1: the key" in done.stderr
    assert "name is" not in program(command, "grand.thin").stderr


def test_an_image_on_another_base(
    program: Program, project: Path, fake_ostree: Callable[[str], Path]
) -> None:
    fake_ostree("exit 1")
    (project / "recipes/bases/thin.yaml").write_text("")
    assert "no image of profile grand.thin" in program("show", "grand", "--base", "thin").stderr


def test_image_that_is_not_there(program: Program, fake_ostree: Callable[[str], Path]) -> None:
    fake_ostree("exit 1")
    done = program("show", "nope")
    assert done.status == 2
    assert (
        "no image of profile nope in the store\n  hint: run imagebuilder build nope" in done.stderr
    )
    assert "more than one version of demo fits '2026'" in program("show", "demo@2026").stderr


def test_failed_work_ends_with_one(program: Program, fake_ostree: Callable[[str], Path]) -> None:
    fake_ostree("echo the disk has dreams >&2; exit 7")
    done = program("show", "demo")
    assert done.status == 1
    assert done.stderr.startswith("error: ostree failed (exit status 7)\n    the disk has dreams\n")


def test_full_disk_ends_with_three(program: Program, fake_ostree: Callable[[str], Path]) -> None:
    fake_ostree("echo 'error: No space left on device' >&2; exit 1")
    done = program("show", "demo")
    assert done.status == 3
    assert "the disk is full: imagebuilder gc frees what no image needs" in done.stderr


def test_lists(program: Program, fake_ostree: Callable[[str], Path]) -> None:
    versions = [f"2026010{number}000000-{digest * 8}" for number, digest in enumerate("ab")]
    manifests = [encode_image(replace(IMAGE, profile="demo", version=one)) for one in versions]
    fake_ostree(
        f"case $* in *{'a' * 64}*) cat <<'END'\n{manifests[0]}\nEND\n;;\n"
        f"*) cat <<'END'\n{manifests[1]}\nEND\n;;\nesac"
    )
    listed = json.loads(program("images", "--json").stdout)
    assert [image["version"][-8:] for image in listed] == ["a" * 8, "b" * 8]
    assert {image["root-size"] for image in listed} == {IMAGE.root.size}
    assert program("images").stdout.splitlines()[0].split()[0] == "image"
    assert json.loads(program("show", "demo", "--json").stdout) == json.loads(manifests[1])
    assert json.loads(program("diff", "demo@aaaa", "demo", "--json").stdout)["same"]
    found = json.loads(program("gc", "--dry-run", "--keep", "1", "--json").stdout)
    assert found["images"] == [f"demo@20260100000000-{'a' * 8}"]


def test_a_state_that_is_no_folder_has_no_images(program: Program, tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("nowhere")
    for place in (Path("/dev/null"), tmp_path / "gone"):
        done = program("images", "--state", os.fspath(place))
        assert (done.status, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {place}: is ")


def test_nothing_to_remove() -> None:
    assert Collected((), 0, 0, 0, 0).render(dry_run=True) == "nothing to remove"
    removed = Collected((), 0, 1, 12, 0).render(dry_run=False)
    assert removed == "removed 0 images, 0 layers, 1 package (12 B), 0 kept builds"


def test_nothing_to_list(program: Program) -> None:
    said = program("images").stdout
    assert re.fullmatch("no images in .*/state yet: run imagebuilder build PROFILE to .*\n", said)
    assert json.loads(program("images", "--json").stdout) == []
    listed = json.loads(program("profiles", "--json").stdout)
    assert [(p["name"], p["origin"]) for p in listed if p["name"][0] in "gm"] == [
        ("generic", "project, replaces shipped"), ("grand", "project"), ("minimal", "shipped"),
    ]  # fmt: skip


def test_schema(program: Program) -> None:
    assert "overlays" in json.dumps(json.loads(program("schema").stdout))


def test_completion_of_profiles(
    project: Path, complete: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complete("plan g") == ["generic", "grand"]
    assert complete("plan gr") == ["grand"]
    assert complete("plan x") == []
    (project / "recipes/bases/thin.yaml").write_text("")
    assert complete("plan grand.t") == ["grand.thin"]
    assert complete("plan grand --base t") == ["thin"]
    assert complete("plan grand --engine debo") == ["debootstrap"]
    monkeypatch.setenv("IMAGEBUILDER_PROJECT", "/nonexistent")
    assert complete("plan ") == []
    assert complete("plan grand --base ") == []
    for line in (f"--project {project} plan gra", f"plan --project {project} gra"):
        assert complete(line) == ["grand"]


def test_completion_of_images(
    project: Path,
    complete: Complete,
    fake_ostree: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert complete("show ") == []
    state = fake_ostree("exit 1")
    versions = [f"demo@2026010{number}000000-{digest * 8}" for number, digest in enumerate("ab")]
    assert complete("show de") == ["demo", *versions]
    assert complete("show demo@20260101") == versions[1:]
    monkeypatch.setenv("IMAGEBUILDER_STATE", os.fspath(project / "nonexistent"))
    assert complete("show de") == []
    assert complete(f"show --state {state} demo@20260101") == versions[1:]


def test_completion_in_a_tree(tmp_path: Path, complete: Complete) -> None:
    (tmp_path / "http/releases/demo/20260100000000-aaaaaaaa").mkdir(parents=True)
    for command in ("promote", "drift"):
        assert complete(f"{command} d") == []
        assert "demo" in complete(f"{command} --tree {tmp_path} d")


def test_global_options_before_and_after_the_command(
    project: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one counts, and each counts more than its variable."""
    other = project / "other"
    (other / "recipes").mkdir(parents=True)
    (other / "recipes/odd.yaml").write_text("")

    def origins(*words: str) -> set[str]:
        return {
            one["name"] for one in json.loads(program(*words).stdout) if "project" in one["origin"]
        }

    assert origins("profiles", "--json") == {"generic", "grand"}
    assert origins("--project", str(other), "profiles", "--json") == {"odd"}
    assert origins("profiles", "--project", str(other), "--json") == {"odd"}
    assert origins("--project", "/nonexistent", "profiles", "--project", str(other), "--json") == {
        "odd"
    }
    monkeypatch.delenv("IMAGEBUILDER_PROJECT")
    assert origins("profiles", "--project", str(other), "--json") == {"odd"}
