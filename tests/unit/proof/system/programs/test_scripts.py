# SPDX-License-Identifier: Apache-2.0
"""Scripts of a site, and what they need that is not in the image."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.programs.scripts import prove_scripts
from tests.unit.proof.trees import Content, Link, Program, Sandbox, make_tree, running, subject

UNIT, TELL = "/etc/systemd/system/a.service", "/usr/local/libexec/tell"
STARTS = f"{TELL}, which a.service starts (ExecStartPre=),"
SYSTEM: Mapping[str, Content] = {
    "/bin": Link("usr/bin"),
    "/usr/bin/sh": Link("dash"),
    "/usr/bin/dash": Program(),
    "/usr/bin/bash": Program(),
    "/usr/bin/env": Program(),
    "/usr/bin/python3": Program(),
    "/usr/bin/ls": Program(),
}


def prepare(root: Path, files: Mapping[str, Content]) -> Subject:
    given = subject(make_tree(root, {**SYSTEM, **files}))
    given.__dict__["shipped"] = {
        path: ShippedFile("base", None) for path in SYSTEM if path.startswith("/usr/bin/")
    }
    return given


def starting(*words: str, key: str = "ExecStartPre", **values: str) -> Startup:
    settings = {"Unit Load State": ("loaded",), **{k: (v,) for k, v in values.items()}}
    unit = LoadedUnit("a.service", (UNIT,), settings, {key: (words or (TELL,),)})
    return Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())


def told(given: Subject, startup: Startup | None = None) -> list[tuple[Level, str]]:
    return [
        (each.level, each.what) for each in prove_scripts(running(given, startup or starting()))
    ]


@pytest.mark.parametrize(
    ("script", "level", "what"),
    [
        (
            "#!/bin/sh\nset -e\ncurl x\nls\n",
            Level.FAULT,
            "ends at line 3: curl is not in the image",
        ),
        ("#!/bin/sh -e\ncurl x\nls\n", Level.FAULT, "ends at line 2: curl is not in the image"),
        (
            "#!/bin/sh\ncurl x\nls\n",
            Level.WARNING,
            "cannot run line 2: curl is not in the image",
        ),
        (
            "#!/bin/sh\n/usr/bin/curl x\n",
            Level.FAULT,
            "ends at line 2: /usr/bin/curl is not in the image",
        ),
        (
            "#!/bin/sh\n. /opt/venv/bin/activate\n",
            Level.FAULT,
            "ends at line 2: it reads /opt/venv/bin/activate, which is not in the image",
        ),
        (
            "#!/bin/sh\nset -e\nsource /etc/os-release\nls\n",
            Level.FAULT,
            "ends at line 3: dash, which runs it, has no source",
        ),
        (
            "#!/bin/sh\nif [[ a = a ]]; then ls; fi\n",
            Level.WARNING,
            "cannot run line 2: dash, which runs it, has no [[",
        ),
        (
            "#!/bin/sh\r\nls\r\n",
            Level.FAULT,
            "cannot run: its interpreter /bin/sh is not in the image, and its line ends with a "
            "carriage return",
        ),
        (
            "#!/usr/bin/env python\nprint()\n",
            Level.FAULT,
            "cannot run: its interpreter python is not in the image",
        ),
        (
            "#!/usr/bin/python3.9\nprint()\n",
            Level.FAULT,
            "cannot run: its interpreter /usr/bin/python3.9 is not in the image",
        ),
        (
            "ls\n",
            Level.FAULT,
            "cannot run: it has no `#!` line",
        ),
    ],
)
def test_what_a_script_lacks_is_named(script: str, level: Level, what: str, tmp_path: Path) -> None:
    given = prepare(tmp_path, {TELL: Program(script)})
    assert told(given) == [(level, f"{STARTS} {what}")]


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\nset -e\nls\n",
        "#!/bin/sh\nset -e\ncommand -v curl >/dev/null || exit 0\ncurl x\n",
        "#!/bin/sh\nset -e\n[ -x /usr/bin/curl ] && curl x\n",
        "#!/bin/sh\nset -e\ncurl x || true\n",
        "#!/bin/sh\nset -e\nif curl x; then ls; fi\n",
        "#!/bin/sh\nset -e\n. /usr/local/lib/more\nsay x\n",
        "#!/bin/sh\nset -e\n. $1/more\nsay x\n",
        "#!/bin/sh\nset -e\n. /usr/local/lib/leads\nsay x\n",
        "#!/bin/sh\nset -e\n. /etc/node-functions\nfrom_node x\n",
        "#!/bin/sh\nset -e\nPATH=$1:$PATH\nsay x\n",
        "#!/bin/sh\nset -e\nPATH=/opt/bin:$PATH\ncurl-of-opt x\n",
        "#!/bin/sh\nset -e\n[ -r /opt/env ] && . /opt/env\nls\n",
        "#!/bin/sh\nset -e\n/run/made-at-boot\n/models/made\n",
        "#!/bin/bash\nset -e\n[[ a = a ]]\nsource /usr/local/lib/more\n",
        "#!/usr/bin/env bash\nset -e\n[[ a = a ]]\n",
        "#!/usr/bin/env -S python3 -I\nprint()\n",
        "#!/usr/bin/python3\ncurl x\n",
        "\x7fELF\0",
    ],
)
def test_nothing_is_said_of_what_works(script: str, tmp_path: Path) -> None:
    more: Mapping[str, Content] = {
        "/usr/local/lib/more": ". /usr/local/lib/leads\nsay() { :; }\n",
        "/usr/local/lib/leads": ". /usr/local/lib/more\n",
        "/opt/bin/curl-of-opt": Program(),
    }
    assert told(prepare(tmp_path, {TELL: Program(script), **more})) == []


def test_a_script_of_a_package_is_left_to_the_package(tmp_path: Path) -> None:
    given = prepare(tmp_path, {TELL: Program("#!/bin/sh\ncurl x\n")})
    given.__dict__["shipped"][TELL] = ShippedFile("tell", None)
    assert told(given) == []


def test_a_failure_that_the_unit_ignores_is_a_warning(tmp_path: Path) -> None:
    unit = {UNIT: f"[Service]\nExecStartPre=-{TELL}\n"}
    given = prepare(tmp_path, {TELL: Program("#!/bin/sh\ncurl x\n"), **unit})
    ((level, _),) = told(given)
    assert level is Level.WARNING


@pytest.mark.parametrize(
    "words",
    [
        ("/bin/sh", "-c", "curl x"),
        ("/usr/bin/bash", "-ec", "curl x; ls"),
        ("/bin/sh", "-e", "-c", "curl x; ls"),
    ],
)
def test_the_text_of_a_shell_is_read_too(words: tuple[str, ...], tmp_path: Path) -> None:
    found = told(prepare(tmp_path, {UNIT: "[Service]\n"}), starting(*words))
    said = f"{words[0]} -c, which a.service starts (ExecStartPre=), ends at line 1"
    assert found == [(Level.FAULT, f"{said}: curl is not in the image")]
    given = prepare(tmp_path, {})
    given.__dict__["shipped"][UNIT] = ShippedFile("a", None)
    assert told(given, starting(*words)) == []


@pytest.mark.parametrize("words", [("/bin/sh", TELL), ("/usr/bin/bash", "-e", TELL)])
def test_a_shell_may_be_given_its_script(words: tuple[str, ...], tmp_path: Path) -> None:
    ((level, what),) = told(prepare(tmp_path, {TELL: "curl x\n"}), starting(*words))
    assert level is Level.FAULT
    assert what == f"{STARTS} ends at line 1: curl is not in the image"


def test_what_a_script_starts_is_read_too(tmp_path: Path) -> None:
    first = "#!/bin/sh\nset -e\nsecond x\n"
    second = {"/usr/local/bin/second": Program("#!/bin/sh\ncurl x\n")}
    ((level, what),) = told(prepare(tmp_path, {TELL: Program(first), **second}))
    assert level is Level.FAULT
    assert what == (
        f"/usr/local/bin/second, which {TELL} starts, ends at line 2: curl is not in the image"
    )


@pytest.mark.parametrize(
    ("path", "who"),
    [
        ("/etc/cron.daily/clean", "cron"),
        ("/etc/update-motd.d/50-load", "pam_motd"),
        ("/usr/lib/systemd/system-sleep/card", "systemd-sleep"),
    ],
)
def test_folders_whose_programs_run(path: str, who: str, tmp_path: Path) -> None:
    given = prepare(tmp_path, {path: Program("#!/bin/sh\ncurl x\n")})
    ((level, what),) = told(given, Startup(frozenset(), {}, {}, ()))
    assert (level, what) == (
        Level.FAULT,
        f"{path}, which {who} starts, ends at line 2: curl is not in the image",
    )


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((TELL,), [[TELL, ""]]),
        (("/usr/bin/python3", TELL), [[TELL, ""]]),
        (("/usr/bin/python3", "-m", "gone.main"), [[UNIT, "import gone.main"]]),
        (("/usr/bin/python3", "-I", "-c", "import gone"), [[UNIT, "import gone"]]),
    ],
)
def test_scripts_of_python_are_given_to_their_interpreter(
    words: tuple[str, ...], asked: list[list[str]], tmp_path: Path
) -> None:
    sandbox = Sandbox({"env /usr/bin/python3": '[[3, "gone"]]'})
    files: dict[str, Content] = {
        TELL: Program("#!/usr/bin/python3\nimport gone\n"),
        UNIT: "[Service]\n",
    }
    given = replace(prepare(tmp_path, files), run=sandbox)
    given.__dict__["shipped"] = {"/usr/bin/python3": ShippedFile("python3")}
    ((level, what),) = told(given, starting(*words))
    assert level is Level.FAULT
    assert what.endswith("ends at line 3: /usr/bin/python3 has no module gone")
    (command,) = (c for c in sandbox.asked if c[1] == "/usr/bin/python3")
    assert json.loads(command[-1]) == asked


@pytest.mark.parametrize(
    ("words", "is_named"),
    [(("/opt/gone",), True), (("/bin/sh", "/opt/gone"), True), (("/run/made",), False)],
)
def test_a_program_that_is_not_there(
    words: tuple[str, ...],
    is_named: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    given = prepare(tmp_path, {UNIT: "[Service]\n"})
    said = "/opt/gone, which a.service starts (ExecStart=), is not in the image"
    found = told(given, starting(*words, key="ExecStart"))
    assert found == ([(Level.FAULT, said)] if is_named else [])
    exists = starting(*words, key="ExecStart", ConditionPathExists=words[-1])
    assert told(given, exists) == []
    given.__dict__["shipped"][UNIT] = ShippedFile("a")
    assert told(given, starting(*words, key="ExecStart")) == []


def test_a_circle_of_scripts_ends(tmp_path: Path) -> None:
    assert told(prepare(tmp_path, {TELL: Program(f"#!/bin/sh\n{TELL}\n")})) == []


def test_a_program_with_a_model_in_it_is_not_read_whole(tmp_path: Path) -> None:
    given = prepare(tmp_path, {TELL: "\x7fELF\0"})
    with (tmp_path / TELL.lstrip("/")).open("r+b") as file:
        file.truncate(1 << 34)
    assert told(given) == []


@pytest.mark.parametrize(
    ("settings", "script", "said"),
    [
        ("Prolog=/etc/slurm/p", "#!/bin/sh\nset -e\nnvidia-smi -L\nls\n",
         (Level.FAULT, "whose failure drains the node, ends at line 3: nvidia-smi is not in")),
        ("Prolog=/etc/slurm/p", "#!/bin/sh\ncommand -v nvidia-smi && nvidia-smi -L\nls\n", None),
        ("TaskProlog=/etc/slurm/p", "#!/bin/sh\nset -e\nnvidia-smi -L\nls\n",
         (Level.WARNING, "/etc/slurm/p, which slurmd runs (TaskProlog=), cannot run line 3")),
        ("#Prolog=/etc/slurm/p", "#!/bin/sh\nset -e\nnvidia-smi -L\nls\n", None),
        ("Epilog=/opt/site/epilog", "#!/bin/sh\n",
         (Level.FAULT, "/opt/site/epilog, which slurmd runs with each job (Epilog=)")),
    ],
)  # fmt: skip
def test_programs_that_slurmd_runs(
    tmp_path: Path, settings: str, script: str, said: tuple[Level, str] | None
) -> None:
    files: dict[str, Content] = {
        "/etc/slurm/slurm.conf": f"{settings}\n", "/etc/slurm/p": Program(script),
        "/usr/sbin/slurmd": "\0",
    }  # fmt: skip
    found = told(prepare(tmp_path, files), starting("/usr/sbin/slurmd", key="ExecStart"))
    assert len(found) == bool(said)
    assert all(said and level is said[0] and said[1] in what for level, what in found)
