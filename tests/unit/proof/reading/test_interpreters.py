# SPDX-License-Identifier: Apache-2.0
"""Which program runs a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.scripts import (
    INTERPRETER,
    PYTHON,
    SHELL,
    behind_env,
    first_line,
    runs,
    texts_of,
)
from tests.unit.proof.trees import make_tree


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"#!/bin/sh\n", ["/bin/sh"]),
        (b"#! \t/bin/bash\t-e \nls", ["/bin/bash", "-e"]),
        (b"#!/bin/sh\r\n", ["/bin/sh\r"]),
        (b"#!\n/bin/sh", []),
        (b"\x7fELF", []),
        (None, []),
    ],
)
def test_the_first_line_of_a_script(content: bytes | None, words: list[str]) -> None:
    assert first_line(content) == words


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("/usr/bin/env bash", ["bash"]),
        ("env -S LANG=C python3 -u a=b", ["python3", "-u", "a=b"]),
        ("env -i", []),
        ("/bin/sh -e", ["/bin/sh", "-e"]),
        ("", []),
    ],
)
def test_what_env_runs(line: str, rest: list[str]) -> None:
    assert behind_env(line.split()) == rest


def test_kinds_of_interpreters() -> None:
    assert runs(SHELL, ["/usr/bin/env", "-S", "bash", "-e"])
    assert runs(PYTHON, ["/opt/bin/python3.11"])
    assert not runs(PYTHON, ["/usr/bin/env"])
    assert all(map(INTERPRETER.fullmatch, ("zsh", "python3", "perl5.36", "env", "java")))


def test_the_script_of_a_command_line(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {"/a": "#!/bin/sh\nswapon /b\n", "/c": b"\x7fELF swapon"})
    assert list(texts_of(tree, ("/a", "-x"))) == ["/a -x", "#!/bin/sh\nswapon /b\n"]
    assert list(texts_of(tree, ("/c",))) == ["/c"]
