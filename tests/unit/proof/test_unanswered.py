# SPDX-License-Identifier: Apache-2.0
"""Programs of the image that do not start, or do not end, are not taken for good answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.process import Completed
from imagebuilder.proof.access.prove import UDEVADM, prove_rules
from imagebuilder.proof.fallback.prove import prove_no_device, prove_plugin
from imagebuilder.proof.libraries.prove import prove_loads
from imagebuilder.proof.reading.environment import Variable
from imagebuilder.proof.say import CUT_OFF, REFUSED, why_unanswered
from imagebuilder.proof.services.devices import SEARCH, prove_search
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.files.needed import prove_packages
from imagebuilder.proof.system.login.accounts import prove_greetings
from imagebuilder.proof.system.programs.helpers import OPENSSL, prove_openssl
from imagebuilder.proof.system.programs.syntax import PythonScript, prove_python_scripts
from tests.unit.proof.trees import Program, Sandbox, make_tree, subject

TOO_LONG = Completed(REFUSED, "", "env: Argument list too long\n")
LATE = Completed(124, "", "", late=True)
CUT = Completed(CUT_OFF, "", "it printed more than 16 MiB")
BACKEND = "/usr/lib/x86_64-linux-gnu/ggml/backends0/libggml-vulkan.so"
LOADED = "library /usr/lib/liba.so\nstatus 0\n"


def python_scripts(asked: Subject) -> Iterator[Finding]:
    script = PythonScript("/x", "", "x.service", ("/usr/bin/python3",), "", matters=True)
    yield from prove_python_scripts(asked, [script])


def search(asked: Subject) -> Iterator[Finding]:
    yield from prove_search(asked, "x.service", ["/x"], {SEARCH: Variable("/srv", "/x.env")})


def loads(asked: Subject) -> Iterator[Finding]:
    yield from prove_loads(asked, "/ld.so", ["/usr/lib/liba.so", "/usr/lib/libb.so"], frozenset())


def greetings(asked: Subject) -> Iterator[Finding]:
    yield from prove_greetings(asked, ["me"])


def no_device(asked: Subject) -> Iterator[Finding]:
    devices = asked.engines["llama.cpp"].model.devices
    assert devices is not None
    yield from prove_no_device(asked, "llama.cpp", devices)


def plugin(asked: Subject) -> Iterator[Finding]:
    yield from prove_plugin(asked, asked.engines["llama.cpp"], "vulkan")


@pytest.mark.parametrize(
    ("ask", "done", "level", "what"),
    [
        (prove_rules, LATE, Level.WARNING, "whether udev accepts its rules"),
        (prove_openssl, LATE, Level.WARNING, "whether OpenSSL works"),
        (greetings, LATE, Level.WARNING, "what a command of me over ssh prints first"),
        (prove_rules, CUT, Level.WARNING, "whether udev accepts its rules"),
        (prove_packages, CUT, Level.WARNING, "which packages the database lists"),
        (no_device, CUT, Level.WARNING, "which devices llama.cpp lists without one"),
        (plugin, LATE, Level.WARNING, "whether vulkan loads"),
        (python_scripts, TOO_LONG, Level.FAULT, "whether Python understands x.service"),
        (search, TOO_LONG, Level.FAULT, f"which libraries {SEARCH} makes x.service load"),
        (
            loads,
            Completed(124, LOADED, "", late=True),
            Level.WARNING,
            "whether all declared libraries load",
        ),
    ],
)
def test_what_a_program_did_not_answer_is_told(
    ask: Callable[[Subject], Iterator[Finding]],
    done: Completed,
    level: Level,
    what: str,
    tmp_path: Path,
) -> None:
    passwd = "me:x:1000:1000::/home/me:/bin/bash\n"
    programs = dict.fromkeys((UDEVADM, OPENSSL, "/x", BACKEND), Program())
    root = make_tree(tmp_path, {**programs, "/etc/passwd": passwd})
    found = list(ask(subject(root, run=Sandbox({"": done}))))
    why = {LATE: "it did not end in time", CUT: "it printed more than 16 MiB"}
    reason = why.get(done, why_unanswered(done))
    expected = (level, f"could not be examined: {what} ({reason})")
    assert expected in [(f.level, f.what) for f in found]
