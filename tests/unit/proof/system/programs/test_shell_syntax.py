# SPDX-License-Identifier: Apache-2.0
"""Scripts that their shell does not understand, as the shells of this host see them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.process import Completed, run
from imagebuilder.proof.system.programs.syntax import MOST_ARGUMENT, ShellText, prove_shell_syntax
from tests.unit.proof.trees import make_tree, subject

SH, BASH = "/bin/sh", "/bin/bash"


def on_host(argv: Sequence[str], *, seconds: int = 60) -> Completed:
    """The shells parse, and run nothing."""
    assert seconds > 0
    assert "-n" in argv
    return run(argv, check=False)


def told(folder: Path, shell: str, text: str, *, matters: bool = True) -> list[tuple[Level, str]]:
    about = subject(make_tree(folder, {}), run=on_host)
    script = ShellText(shell, text, "/usr/local/sbin/go", "the script", matters)
    return [(each.level, each.what) for each in prove_shell_syntax(about, [script])]


@pytest.mark.parametrize("shell", [SH, BASH])
@pytest.mark.parametrize(
    "text",
    [
        "if true; then\n  echo\n",
        "for x in 1 2; do\n  echo\nfi\n",
        'echo "never closed\n',
        "if true; then\n  echo\nexit 0\n",
        "go() {\n  echo )\n}\n",
    ],
)
def test_a_mistake_is_told(tmp_path: Path, shell: str, text: str) -> None:
    ((level, what),) = told(tmp_path, shell, text)
    assert level is Level.FAULT
    assert what.startswith("the script ends with an error at line ")


def test_it_says_where(tmp_path: Path) -> None:
    ((level, what),) = told(tmp_path, BASH, "echo\nif true; fi\n", matters=False)
    assert level is Level.WARNING
    assert what == (
        "the script ends with an error at line 2: syntax error near unexpected token `fi'"
    )


@pytest.mark.parametrize(
    ("shell", "text"),
    [
        (SH, "set -e\nif true; then echo; fi\n"),
        (BASH, "shopt -s extglob\ncase $1 in !(a|b)) echo ;; esac\n"),
        (BASH, "a=(1 2)\n[[ $1 == x ]] && echo\n"),
        (SH, 'tail -n +4 "$0" | tar -x\nexit 0\n)))))(if\n'),
        (SH, "exec /usr/bin/program\n(((\n"),
        (SH, ""),
        (SH, "\0((("),
        (SH, "(" * (MOST_ARGUMENT + 1)),
    ],
)
def test_what_the_shell_understands_or_never_reads_is_not(
    tmp_path: Path, shell: str, text: str
) -> None:
    assert told(tmp_path, shell, text) == []


def test_a_shell_that_does_not_end_is_told(tmp_path: Path) -> None:
    def late(_: Sequence[str], *, seconds: int = 60) -> Completed:
        return Completed(124, "", "", late=seconds > 0)

    about = subject(make_tree(tmp_path, {}), run=late)
    script = ShellText(SH, "echo\n", "/go", "the script", matters=True)
    (found,) = prove_shell_syntax(about, [script])
    assert found.level is Level.WARNING
    assert "whether /bin/sh understands the script" in found.what
