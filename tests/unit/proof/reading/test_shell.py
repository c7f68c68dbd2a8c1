# SPDX-License-Identifier: Apache-2.0
"""The commands of shell scripts, and what the failure of each does."""

from __future__ import annotations

from time import process_time

import pytest

from imagebuilder.proof.reading.shell import MOST_BYTES, MOST_DOCUMENTS, Consequence, parse_shell

EXPECTED, IGNORED, ENDS = Consequence.EXPECTED, Consequence.IGNORED, Consequence.ENDS


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("go", ENDS),
        ("go; true", IGNORED),
        ("set -e; go; true", ENDS),
        ("set -eu; go; true", ENDS),
        ("set -o errexit; go; true", ENDS),
        ("set -e; set +e; go; true", IGNORED),
        ("set -- -e; go; true", IGNORED),
        ("set -e; go & true", IGNORED),
        ("true; exec go", ENDS),
        ("exec go; true", ENDS),
        ("set -e; exec nohup", None),
        ("true; exit; go", None),
        ("set -e; go || true", EXPECTED),
        ("set -e; true || go", IGNORED),
        ("set -e; go && true; true", IGNORED),
        ("set -e; ! go; true", IGNORED),
        ("set -e; if go; then true; fi", EXPECTED),
        ("if true; then true; elif go; then true; fi", EXPECTED),
        ("if true; then go; fi", IGNORED),
        ("if true; then true; else go; fi", IGNORED),
        ("while go; do true; done", EXPECTED),
        ("while true; do go; done", IGNORED),
        ("case $1 in a) go;; esac", IGNORED),
        ("for i in 1 2; do go; done", IGNORED),
        ("set -e; A=$(go); true", ENDS),
        ('set -e; A="x$(go)"; true', ENDS),
        ("set -e; export A=$(go); true", IGNORED),
        ("set -e; echo $(go); true", IGNORED),
        ("set -e; A=`go`; true", ENDS),
        ("set -e; go | cat; true", IGNORED),
        ("set -e; cat | go; true", ENDS),
        ("set -e; go | cat || true", EXPECTED),
        ("set -e; go >/dev/null 2>&1; true", ENDS),
        ("set -e; A=1 go; true", ENDS),
        ("set -e; 'go'; true", ENDS),
        ('set -e; "go"; true', ENDS),
        ("set -e; (go); true", ENDS),
        ("set -e; { go; }; true", ENDS),
        ("set -e; sudo go; true", ENDS),
        ("set -e; env A=1 go; true", None),
        ("set -e; command -v go; true", None),
        ("set -e; $X/go; true", None),
        ("set -e; cat <<A\n$(go)\nA\ntrue", IGNORED),
        ("set -e; cat <<'A'\n$(go)\nA\ntrue", None),
        ("set -e; cat < <(go); true", IGNORED),
        # A function does what its callers make of it, and nothing if nobody calls it for sure.
        ("set -e; f() { go; }; f; true", ENDS),
        ("set -e; f() { go; }; f || true", EXPECTED),
        ("set -e; f() { go; }; g() { f; }; g; true", ENDS),
        ("set -e; f() { go; }; true", IGNORED),
        ("f() { f; go; }; f", ENDS),
        ("set -e; # go\ntrue", None),
        ("set -e; echo go; true", None),
    ],
)
def test_what_the_failure_of_a_command_does(text: str, failure: Consequence | None) -> None:
    script = parse_shell(f"#!/bin/sh\n{text}\n".encode())
    assert script
    found = [command.failure for command in script.commands if command.name == "go"]
    assert found == ([] if failure is None else [failure])


def test_what_a_script_defines_asks_and_reads() -> None:
    script = parse_shell(
        b"""#!/bin/sh
. /etc/default/x
if [ -r /etc/y ]; then . "/etc/y"; fi
alias ll='ls -l'
f() { :; }
PATH=/opt/bin:$PATH
command -v curl && curl x
[ -x /usr/bin/wget ] && /usr/bin/wget x
test -e /usr/bin/jq && jq .
"""
    )
    assert script
    assert [(s.name, s.line) for s in script.sourced] == [("/etc/default/x", 2), ("/etc/y", 3)]
    assert script.functions == {"ll", "f"}
    assert script.asked >= {"/etc/y", "curl", "/usr/bin/wget", "/usr/bin/jq"}
    assert script.path == ("/opt/bin:$PATH",)


@pytest.mark.parametrize("text", ["eval $X", 'eval "$(ssh-agent)"', ". $X", 'source "$X"'])
def test_a_file_that_is_not_written_out_may_define_anything(text: str) -> None:
    script = parse_shell(text.encode())
    assert script
    assert [each.name for each in script.sourced] == [""]


@pytest.mark.parametrize(
    "text",
    [
        "if true; then",
        "a=(1 2",
        "x" * (MOST_BYTES + 1),
        "<<A\n" * (MOST_DOCUMENTS + 1),
        "(" * 5000 + "go" + ")" * 5000,
        "true && " * 5000 + "true",
        "case x in " + "@(a|" * 20_000,
    ],
)
def test_what_the_grammar_does_not_cover_is_left_alone(text: str) -> None:
    assert parse_shell(text.encode()) is None


@pytest.mark.parametrize("text", ["go\n" * 40_000, "go|" * 40_000 + "go\n", "go &\n" * 25_000])
def test_the_time_grows_with_the_length_of_a_script(text: str) -> None:
    start = process_time()
    script = parse_shell(text.encode())
    assert process_time() - start < 5
    assert script
    assert {command.name for command in script.commands} == {"go"}


def test_a_part_of_an_assignment_is_no_command() -> None:
    script = parse_shell(b"if true; then\nj=$t/.$n.info\nelif true; then j=$t/$n.info\nfi\n")
    assert script is None or not any("info" in command.name for command in script.commands)
