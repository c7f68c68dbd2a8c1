# SPDX-License-Identifier: Apache-2.0
"""Long numbers, texts in the place of numbers, and words that no program takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from pathlib import Path

import pytest

from imagebuilder.image.proof import Evidence, Finding, Level, Question, Result
from imagebuilder.process import Word
from imagebuilder.proof.access.prove import prove_access
from imagebuilder.proof.kernel.options import prove_memory, prove_words
from imagebuilder.proof.privileges.files import find_accounts
from imagebuilder.proof.privileges.prove import prove_privileges
from imagebuilder.proof.prove import (
    MOST_FINDINGS,
    MOST_SAID,
    MOST_TOGETHER,
    Printed,
    answer_question,
    run_in,
)
from imagebuilder.proof.reading.accounts import UnitAccount, account_of, read_accounts
from imagebuilder.proof.reading.systemd import parse_units
from imagebuilder.proof.reading.texts import size_of, whole
from imagebuilder.proof.say import REFUSED, why_unanswered
from imagebuilder.proof.services.containers import prove_containers
from imagebuilder.proof.system.prove import prove_system
from tests.unit.proof.trees import make_tree, subject

LONG = "9" * 5000
ROOT = "root:x:0:0::/root:/bin/sh\n"


class Directly:
    """Runs a command here, as the sandbox would."""

    environment = None

    def words(self, argv: Sequence[Word]) -> list[Word]:
        return list(argv)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("512B", 512),
        ("64M", 64 << 20),
        (" 1.5G ", 3 << 29),
        ("2 T", 2 << 40),
        ("1E", 1 << 60),
        ("infinity", -1),
        ("50%", -1),
        ("64m", -1),
        ("1.G", -1),
        (LONG, -1),
    ],
)
def test_sizes_as_systemd_has_them(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize(
    ("text", "number"),
    [("", -1), ("x", -1), ("-1", -1), ("\u00b2", -1), ("0", 0), ("000", 0), ("007", 7), ("80", 80)],
)
def test_a_number_is_what_its_digits_say(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("number", ["", "x", "-1", "1x"])
def test_lines_whose_ids_are_no_numbers_are_skipped(number: str, tmp_path: Path) -> None:
    passwd = f"{ROOT}a:x:{number}:7::/a:/bin/sh\nb::7:{number}::/b:/bin/sh\nc:x:7:7::/c:/bin/sh\n"
    root = make_tree(tmp_path, {"/etc/passwd": passwd, "/etc/group": f"x:*:{number}:c\ny:x:7:\n"})
    accounts = read_accounts(root)
    assert set(accounts.users) == set(accounts.logins) == {"root", "c"}
    assert accounts.groups_of("c") == {"y"}
    assert not list(find_accounts(root, {}))
    (unit,) = parse_units("-> Unit c.service:\n\tUser: c\n")
    assert account_of(unit, accounts) == UnitAccount("c", 7, frozenset({7}))


def test_a_long_number_is_larger_than_all_others() -> None:
    assert whole(LONG) > 1 << 64
    assert whole("0" * 9000 + "1") == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/passwd", f"{ROOT}a:x:{LONG}:{LONG}::/:/bin/sh\n"),
        ("/etc/group", f"root:x:0:\na:x:{LONG}:\n"),
        ("/etc/shadow", f"root:$6$x:{LONG}:0:{LONG}:7::{LONG}:\n"),
        ("/etc/shadow", "root:$6$x:100:0:soon:7:::\n"),
        ("/etc/sysctl.d/9.conf", f"vm.nr_hugepages = {LONG}\n"),
        ("/etc/modprobe.d/9.conf", f"options amdgpu gttsize={LONG}\n"),
        ("/etc/pam.d/x", f"auth [default={LONG}] pam_unix.so\nauth sufficient pam_permit.so\n"),
        ("/etc/nvidia-container-runtime/config.toml", f"x = {LONG}\n"),
    ],
)
def test_no_number_ends_the_proof(tmp_path: Path, path: str, text: str) -> None:
    unit = {"/usr/lib/systemd/system/docker.service": "[Service]\nExecStart=/usr/bin/dockerd\n"}
    root = make_tree(tmp_path, {"/etc/passwd": ROOT, **unit, path: text})
    asked = subject(root, users={"a": ()})
    for question in (prove_access, prove_privileges, prove_containers, prove_system):
        assert list(question(asked)) is not None
    assert list(prove_words(asked)) == list(prove_memory(asked)) == []


@pytest.mark.parametrize("word", ["x" * (1 << 18), "a\0b"])
def test_words_that_no_program_takes_are_an_answer(word: str) -> None:
    done = run_in(Directly(), ["true", word], 5, Printed())
    assert (done.status, done.stdout) == (REFUSED, "")
    assert done.stderr.startswith("true: ")


def test_output_without_an_end_is_an_answer() -> None:
    printed = Printed()
    done = run_in(Directly(), ["yes"], 60, printed)
    assert (why_unanswered(done), done.stdout) == ("it printed more than 16 MiB", "")
    assert run_in(Directly(), ["echo", "a"], 60, printed).stdout == "a\n"
    assert printed.total == len("a\n")


def test_all_programs_together_do_not_fill_the_memory() -> None:
    printed, zeros = Printed(), ["head", "-c", str(MOST_SAID), "/dev/zero"]
    whys = [why_unanswered(run_in(Directly(), zeros, 60, printed)) for _ in range(17)]
    assert whys == [*[""] * 16, "the programs of the image printed more than 256 MiB"]
    assert printed.total == MOST_TOGETHER


def test_findings_without_an_end_are_a_fault(tmp_path: Path) -> None:
    warning = Finding(Level.WARNING, "again", hint="again", question=Question.SYSTEM)
    answer = answer_question(subject(tmp_path), Question.SYSTEM, lambda _: repeat(warning))
    assert len(answer.findings) == MOST_FINDINGS + 1
    assert answer.result is Result.FAILED


def test_findings_are_printable_lines(tmp_path: Path) -> None:
    name = "/etc/a\nb\x1b[31m.service"
    finding = Finding(
        Level.FAULT, name, (Evidence(name, name, name, name),), name, question=Question.SYSTEM
    )
    (found,) = answer_question(subject(tmp_path), Question.SYSTEM, lambda _: [finding]).findings
    plain = r"/etc/a\nb\x1b[31m.service"
    assert found == Finding(
        Level.FAULT, plain, (Evidence(plain, plain, plain, plain),), plain, question=Question.SYSTEM
    )
