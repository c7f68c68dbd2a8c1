# SPDX-License-Identifier: Apache-2.0
"""Options that programs of a site's services do not have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.programs.options import prove_options
from tests.faults.elf import library, program
from tests.fixtures.elf import LOADER, make_elf
from tests.unit.proof.trees import Content, make_tree, running, subject

UNIT, SETTINGS = "/etc/systemd/system/a.service", "/etc/default/a"
PROGRAM, LIBRARY = "/usr/bin/daemon", "/usr/lib/x86_64-linux-gnu/liboptions.so.1"
FILES: Mapping[str, Content] = {
    UNIT: "[Service]\n",
    PROGRAM: program("liboptions.so.1") + b"\0listen-address\0log_level\0",
    LIBRARY: library(LIBRARY) + b"\0tls-cert\0",
    "/usr/bin/script": "#!/bin/sh\ncase $1 in --once) ;; esac\n",
    "/usr/bin/wrapper": '#!/bin/sh\nexec daemon "$@"\n',
    "/usr/bin/tool.py": "#!/usr/share/python3\n",
    "/usr/bin/other": program(),
    "/usr/bin/stub": program() + b"\0config\0execvp\0",
    "/usr/bin/large": program() + b"\0config\0execvp\0" + bytes(64 << 10),
    "/usr/bin/placeholder": "#!/bin/sh\n# in the place of daemon --config\nexec sleep infinity\n",
}


def told(root: Path, line: str, settings: str = "", **shipped: str) -> list[tuple[Level, str]]:
    files = {**FILES, SETTINGS: settings} if settings else FILES
    given: Subject = subject(make_tree(root, files))
    given.__dict__["shipped"] = {path: ShippedFile("a") for path in shipped.values()}
    values = {"Unit Load State": ("loaded",), "EnvironmentFile": (SETTINGS,) if settings else ()}
    unit = LoadedUnit("a.service", (UNIT,), values, {"ExecStart": (tuple(line.split()),)})
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())
    return [(each.level, each.what) for each in prove_options(running(given, startup))]


@pytest.mark.parametrize(
    ("line", "level", "option"),
    [
        (f"{PROGRAM} --listen-address=:1 --network-plugin=cni", Level.FAULT, "network-plugin"),
        ("daemon --listen-address :1 --network-plugin cni", Level.FAULT, "network-plugin"),
        ("/usr/bin/script --once --twice", Level.FAULT, "twice"),
    ],
)
def test_an_option_that_is_nowhere(line: str, level: Level, option: str, tmp_path: Path) -> None:
    program = line.split()[0] if line.startswith("/") else PROGRAM
    said = f"a.service does not start: {program} has no option --{option} (ExecStart=)"
    assert told(tmp_path, line) == [(level, said)]


def test_libraries_that_a_variable_leads_to(tmp_path: Path) -> None:
    line = f"{PROGRAM} --listen-address=:1 --network-plugin=cni"
    ((level, what),) = told(tmp_path, line, "LD_LIBRARY_PATH=/opt/lib\n")
    assert level is Level.WARNING
    said = f"a.service might not start: {PROGRAM} has no option --network-plugin (ExecStart=)"
    assert what == said


def test_a_program_that_may_only_start_another(tmp_path: Path) -> None:
    said = "a.service might not start: /usr/bin/stub has no option --port (ExecStart=)"
    assert told(tmp_path, "/usr/bin/stub --config x --port 1") == [(Level.WARNING, said)]
    ((level, what),) = told(tmp_path / "large", "/usr/bin/large --config x --port 1")
    assert level is Level.FAULT
    assert "large has no option --port" in what


def test_options_of_which_none_is_there(tmp_path: Path) -> None:
    ((level, what),) = told(tmp_path, f"{PROGRAM} --network-plugin cni --network-name x")
    assert level is Level.WARNING
    assert what.endswith(
        "contains none of its options: --network-plugin, --network-name (ExecStart=)"
    )


@pytest.mark.parametrize(
    "line",
    [
        f"{PROGRAM} --listen-address=:1 --log-level info --no-tls-cert",
        f"{PROGRAM} --listen-address.more x --help -x value",
        f"{PROGRAM} --listen-address=:1 /usr/bin/other --network-plugin",
        f"{PROGRAM} -- --network-plugin",
        "/usr/bin/wrapper --network-plugin",
        "/usr/bin/placeholder --config x --port 1",
        "/usr/bin/tool.py --network-plugin",
        "/usr/bin/env --network-plugin",
        "/usr/bin/gone --network-plugin",
    ],
)
def test_options_that_a_program_may_have(line: str, tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/env").write_bytes(b"\x7fELF")
    assert told(tmp_path, line) == []


def test_a_program_whose_library_is_not_found_may_have_any_option(tmp_path: Path) -> None:
    files = {path: content for path, content in FILES.items() if path != LIBRARY}
    given = subject(make_tree(tmp_path, files))
    given.__dict__["shipped"] = {}
    words = (PROGRAM, "--network-plugin")
    unit = LoadedUnit(
        "a.service", (UNIT,), {"Unit Load State": ("loaded",)}, {"ExecStart": (words,)}
    )
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())
    assert list(prove_options(running(given, startup))) == []


def test_an_option_of_a_library_beside_the_program(tmp_path: Path) -> None:
    beside = "/opt/a/lib/liboptions.so.1"
    files: dict[str, Content] = {
        beside: library(beside) + b"\0tls-cert\0",
        "/opt/a/bin/daemon": make_elf(
            interpreter=LOADER, needed=("liboptions.so.1",), runpath="$ORIGIN/../lib"
        ),
    }
    make_tree(tmp_path, files)
    assert told(tmp_path, "/opt/a/bin/daemon --tls-cert x") == []
    [(level, _)] = told(tmp_path, "/opt/a/bin/daemon --tls-cert x --tls-key y")
    assert level is Level.FAULT


def test_options_of_a_settings_file_for_a_unit_of_a_package(tmp_path: Path) -> None:
    line, settings = f"{PROGRAM} --listen-address=:1 $MORE", 'MORE="--network-plugin=cni"\n'
    assert len(told(tmp_path, line, settings, unit=UNIT)) == 1
    assert told(tmp_path, line, settings, unit=UNIT, file=SETTINGS) == []
