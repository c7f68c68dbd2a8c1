# SPDX-License-Identifier: Apache-2.0
"""Files that an older version wrote, byte for byte, are read by this one and lose nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from imagebuilder.decode import JsonFile
from imagebuilder.digest import Json
from imagebuilder.image.proof import Result
from imagebuilder.image.types import decode_image, encode_image
from imagebuilder.nightly.types import NIGHTLY_RUN, NightlyRun
from imagebuilder.nodes.evidence.seen import SEEN, read_seen
from imagebuilder.publish.journal import PROMOTE, PUBLISH, read_tail
from imagebuilder.report.types import REPORT, Report

WRITTEN = Path(__file__).parent / "written"


@pytest.mark.parametrize(
    ("name", "document", "added"),
    [
        ("report.json", REPORT, {"after": []}),
        ("night.json", NIGHTLY_RUN, {"begun": None, "untold": []}),
    ],
)
def test_a_record_is_read_and_written_as_it_was(
    name: str, document: JsonFile[Report] | JsonFile[NightlyRun], added: dict[str, Json]
) -> None:
    path = WRITTEN / name
    box = document.load(path)
    before = json.loads(path.read_text())
    for done in before.get("profiles", ()):
        done["lock"] = ""
    assert document.encode(box) == {**before, **added}  # type: ignore[arg-type]


def test_a_manifest_with_its_proof_keeps_its_bytes() -> None:
    text = (WRITTEN / "manifest.json").read_text()
    image = decode_image(text, "manifest.json")
    assert image.proof is not None
    assert [answer.result for answer in image.proof.answers] == [Result.PROVED, Result.FAILED]
    assert encode_image(image) == text


def test_a_record_from_before_there_were_schemas_is_read() -> None:
    path = WRITTEN / "seen.json"
    seen = read_seen(path)
    assert seen is not None
    assert SEEN.encode(seen, nulls=False) == {
        "schema": 1,
        "given": "",
        "pci": "",
        **json.loads(path.read_text()),
    }


def test_a_journal_is_read_without_the_line_that_was_cut_short() -> None:
    published, promoted = read_tail(WRITTEN / "journal.jsonl")
    assert (published.event, published.sums, published.by) == (PUBLISH, "ab", "root")
    assert (promoted.event, str(promoted.release), promoted.report) == (PROMOTE, "generic@1", "")
