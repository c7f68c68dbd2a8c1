# SPDX-License-Identifier: Apache-2.0
"""The corpus of faults is written as it should be; hits are told from misses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from imagebuilder.bootfiles import EARLY, INITRD
from imagebuilder.cpio import Entry, render_cpio
from imagebuilder.image.proof import Question
from imagebuilder.process import Completed
from imagebuilder.proof.libraries.prove import LOAD, parse_loads
from imagebuilder.proof.reading.report import MARK
from imagebuilder.report.types import Check, Outcome, Stage
from imagebuilder.root import Root
from imagebuilder.tree import ReleaseName
from imagebuilder.tree import make_tree as make_netboot_tree
from tests.faults.catch import CAUGHT, MISSED, Found, found_by, judge
from tests.faults.fault import CORPUS, KINDS, PROVE, Fault, load_fault, load_faults
from tests.faults.initrd import parse, render, replacing, without
from tests.faults.roots import NAMES
from tests.faults.roots.made import Answers
from tests.faults.site import VERBS, Site, plant
from tests.faults.table import GOOD, Row, render_list
from tests.faults.table import render as render_table
from tests.unit.each import for_each
from tests.unit.proof.trees import Program, make_tree

PAGE = CORPUS.parents[1] / "docs/faults.md"
LEAST = 124
ACCELERATORS = 60
SECRETS = 10
# Boots that every run of the tests makes.
MOST_CHEAP = 3

ROOT_GONE = Fault(
    "root-gone", "The root is gone.", "nfs(5)", "tree", "test", Stage.ROOT, "No such file"
)
LOUD = Fault(
    "loud", "A file is loud.", "here", "image", "check", Stage.TREE, "is loud",
    check="test_quiet[a]", also=("test_calm",),
)  # fmt: skip
MUTE = Fault(
    "mute", "The driver is mute.", "there", "accelerator", "prove", None, "is mute",
    image="made-amd", also=("libraries",), question=Question.KERNEL,
)  # fmt: skip


@cache
def corpus() -> Mapping[str, Fault]:
    """Every fault by its name; not read while tests are collected, which every worker does."""
    return {fault.name: fault for fault in load_faults()}


def test_there_are_enough_of_each_kind() -> None:
    faults = corpus().values()
    assert len(faults) >= LEAST
    assert {fault.kind for fault in faults} == set(KINDS)
    assert sum(fault.name.startswith("secret-") for fault in faults) >= SECRETS
    assert sum(fault.kind == "accelerator" for fault in faults) >= ACCELERATORS
    assert {fault.question for fault in faults if fault.question} == set(Question)
    assert sum(fault.cheap for fault in faults) <= MOST_CHEAP


@for_each({path.parent.name: path.parent.name for path in CORPUS.glob("*/fault.yaml")})
def test_a_fault_says_what_it_is_and_is_planted(name: str) -> None:
    fault = corpus()[name]
    assert fault.description.endswith(".")
    assert fault.source
    re.compile(fault.words)
    assert all(len(set(step) & VERBS.keys()) == 1 for step in fault.plant)
    code = fault.code
    spoils = code is not None and hasattr(code, "spoil")
    plants = code is not None and hasattr(code, "plant")
    commands = not (fault.boots or fault.stage or fault.question)
    own = fault.boot.words or fault.boot.memory or commands
    assert fault.plant or spoils or plants or own
    assert not spoils or fault.boots
    assert not fault.boot.at or (spoils and Stage(fault.boot.at))
    assert not fault.boot.select or fault.check in fault.boot.select


def test_faults_of_accelerators_are_proved_on_small_roots() -> None:
    for fault in corpus().values():
        if fault.kind == "accelerator":
            assert fault.image in NAMES, fault.name
            assert fault.caught == PROVE, fault.name
            assert {*map(Question, fault.also)}.isdisjoint({fault.question}), fault.name


def test_every_folder_of_the_corpus_is_a_fault() -> None:
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert folders - {"roots"} == corpus().keys()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("kind: moon", "kind is none of"),
        ("colour: red", "no such keys: colour"),
        ("boot: {until: root}", "until is none of"),
        ("caught-by: promote", "a boot test names a stage"),
        ("question: kernel", "a proof names a question"),
    ],
)
def test_a_fault_that_is_written_wrongly_is_refused(tmp_path: Path, line: str, what: str) -> None:
    good = {
        "description": "It is so.", "source": "here", "kind": "tree", "caught-by": "test",
        "stage": "root", "words": "so",
    }  # fmt: skip
    key, _, value = line.partition(": ")
    path = tmp_path / "bad/fault.yaml"
    path.parent.mkdir()
    path.write_text("".join(f"{k}: {v}\n" for k, v in {**good, key: value}.items()))
    with pytest.raises(ValueError, match=what):
        load_fault(path)


@pytest.mark.parametrize(
    ("fault", "found", "outcome"),
    [
        (ROOT_GONE, Found(Stage.ROOT, "mount: No such file or directory"), CAUGHT),
        (ROOT_GONE, Found(), MISSED),
        (ROOT_GONE, Found(Stage.NETWORK, "No such file"), "WRONG STAGE network: No such file"),
        (ROOT_GONE, Found(Stage.ROOT, "timed out\nlook"), "WRONG WORDS: timed out"),
        (LOUD, Found(Stage.TREE, "it is loud", ("test_quiet[a]",)), CAUGHT),
        (LOUD, Found(Stage.TREE, "it is loud", ("test_quiet[a]", "test_calm[b]")), CAUGHT),
        (LOUD, Found(Stage.TREE, "it is loud", ("test_quiet[b]",)), "OTHER CHECK: test_quiet[b]"),
        (
            LOUD,
            Found(Stage.TREE, "it is loud", ("test_quiet[a]", "test_red")),
            "FALSE ALARM BESIDE IT: test_red",
        ),
        (MUTE, Found(None, "it is mute", ("kernel", "libraries")), CAUGHT),
        (MUTE, Found(None, "it is mute", ("libraries",)), "OTHER CHECK: libraries"),
        (
            MUTE,
            Found(None, "it is mute", ("kernel", "access")),
            "FALSE ALARM BESIDE IT: access",
        ),
    ],
)
def test_a_finding_is_judged(fault: Fault, found: Found, outcome: str) -> None:
    assert judge(fault, found) == outcome


def test_words_and_checks_of_a_finding_are_those_that_failed() -> None:
    good = Check("ssh", "test_keys", "static", Outcome.PASSED, 0.1)
    bad = replace(good, name="test_ports", outcome=Outcome.FAILED, message="22 is open")
    assert found_by([good]).nothing
    found = found_by([good, bad])
    assert found == Found(Stage.TREE, "ssh: ports: 22 is open", ("test_ports",))


def test_programs_of_a_small_root_answer_as_in_a_real_one(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {"/usr/bin/tool": Program(), "/bin/sh": Program(), "/usr/bin/shut": "#!/bin/sh\n",
         "/usr/bin/other": Program("#!/usr/bin/python3\n"), "/opt/python": Program()},
    )  # fmt: skip
    said: dict[str, str | dict[str, dict[str, str]]] = {
        "/usr/bin": "", "/usr/bin/tool --list": "none\n",
        "/opt/python -c": {"environment": {"python": "3.13"}}, "load /lib/b.so": "b.so: no\n",
    }  # fmt: skip
    ask = Answers(said, Root(tmp_path))
    assert ask(["env", "A=1", "/usr/bin/tool", "--list", "all"]) == Completed(0, "none\n", "")
    assert ask(["/opt/python", "-c", "import sys\nsys"]).stdout == f'\n{MARK}{{"python": "3.13"}}\n'
    loading = ask(["sh", "-c", LOAD, "sh", "/lib/ld.so", "/lib/a.so", "/lib/b.so"]).stdout
    assert {name: bool(lines) for name, lines in parse_loads(loading).items()} == {
        "/lib/a.so": False, "/lib/b.so": True,
    }  # fmt: skip
    missing = [["/usr/bin/none"], ["/usr/bin/shut"], ["/usr/bin/other"], ["unknown"]]
    assert [ask(words).status for words in missing] == [127, 126, 127, 127]


def test_an_initrd_is_taken_apart_and_put_together() -> None:
    entries = [Entry("lib/a.ko", b"driver"), Entry("lib/b.sh", b"id=mac"), Entry("init", link="b")]
    data = render_cpio(entries) + bytes(1024) + b"more"
    found, end = parse(data)
    assert data[end:] == b"more"
    assert [name for _, name, _ in found] == ["lib", "lib/a.ko", "lib/b.sh", "init"]
    assert parse(render(found))[0] == found
    assert [n for _, n, _ in without("*/a.ko*")(found)] == ["lib", "lib/b.sh", "init"]
    changed = parse(render(replacing(r"\Aid=(?=m)", "name=", "*.sh")(found)))[0]
    assert [content for _, _, content in changed] == [b"", b"driver", b"name=mac", b"b"]


@pytest.mark.parametrize(
    ("step", "changes"),
    [
        ({"initrd": "without", "files": "lib/a.ko"}, True),
        ({"initrd": "without", "files": "a.ko"}, False),
        ({"initrd": "replacing", "pattern": "^driver", "by": "x", "files": "*.ko"}, True),
        ({"initrd": "replacing", "pattern": "divers", "by": "x", "files": "*"}, False),
    ],
)
def test_a_step_that_changes_nothing_in_the_initrd_is_wrong(
    tmp_path: Path, step: Mapping[str, str], *, changes: bool
) -> None:
    site = Site(make_netboot_tree(tmp_path / "tree"), ReleaseName("demo", "1"))
    site.folder.mkdir(parents=True)
    (site.folder / "manifest.json").write_text('{"kernel": {"release": "6"}}')
    for name in (EARLY, INITRD):
        (site.folder / name).write_bytes(render_cpio([Entry("lib/a.ko", b"driver")]))
    with nullcontext() if changes else pytest.raises(ValueError, match="changes nothing"):
        plant(site, (step,))


def test_the_table_counts_what_was_caught_and_false_alarms() -> None:
    rows = [
        Row("a-fault", "image", "static", "check", 3.4, CAUGHT),
        Row("other", "tree", "-", "promote", 12.0, MISSED),
        Row(GOOD, "generic", "static", "check", 6.0, "quiet"),
        Row(GOOD, "rx7600xt", "static", "check", 6.0, "FALSE ALARM: test_red"),
    ]
    lines = render_table(rows)
    assert lines[1] == "a-fault  image     static  check    3   caught"
    assert lines[-1] == "1 of 2 faults caught; 1 false alarms on 2 good images"


def test_the_list_in_the_documentation_is_up_to_date() -> None:
    listed = render_list([*corpus().values()])
    assert listed in PAGE.read_text(), "python -m tests.faults.table prints it"
