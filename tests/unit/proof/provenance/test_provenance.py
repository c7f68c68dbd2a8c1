# SPDX-License-Identifier: Apache-2.0
"""What the question says of a root."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.proof.provenance.prove import MOST_PATHS, prove_provenance
from imagebuilder.proof.reading.provenance import CONTENT, METADATA, Provenance, Trace, TraceKind
from tests.unit.proof.provenance.chain import BASE, PACKAGES, SITE
from tests.unit.proof.trees import subject

FIRMWARE = "/usr/lib/firmware/amdgpu/gc_11_0_2_mec.bin"


def changed(path: str, step: str, change: str = CONTENT) -> Trace:
    return Trace(path, TraceKind.CHANGED, (BASE, step), "tool 2.0", change=change)


def found(tmp_path: Path, *traces: Trace) -> list[Finding]:
    given = Provenance(
        {trace.path: trace for trace in traces},
        {"prune": ("/usr/share/a",), "": ("/usr/share/b", "/usr/share/c")},
        frozenset((BASE, PACKAGES)),
    )
    return list(prove_provenance(subject(tmp_path, trace=lambda: given)))


def test_it_is_not_asked_where_the_layers_are_not_at_hand(tmp_path: Path) -> None:
    assert list(prove_provenance(subject(tmp_path))) == []


def test_a_root_as_the_build_left_it(tmp_path: Path) -> None:
    facts = found(
        tmp_path,
        Trace("/usr/bin/tool", TraceKind.PACKAGE, (BASE,), "tool 2.0"),
        Trace("/etc/a", TraceKind.OVERLAY, (SITE,), "", "site"),
        changed("/usr/lib/os-release", "finalise"),
        changed("/usr/lib/libbig.so", "slim"),
        changed("/etc/conf", SITE),
        changed("/usr/bin/tool2", SITE, METADATA),
        changed("/usr/lib/x", PACKAGES),
    )
    assert {fact.level for fact in facts} == {Level.FACT}
    assert [fact.what for fact in facts] == [
        "7 paths: 1 as packages ship them, 1 as overlays place them, "
        "5 of packages, changed by steps",
        "2 paths of packages never installed, or removed immediately",
        "1 path of packages removed by prune",
    ]
    assert (
        facts[0].evidence[0].said
        == "content changed by configure site, shipped by package tool 2.0"
    )


def test_of_many_paths_the_first_are_named(tmp_path: Path) -> None:
    many = [changed(f"{FIRMWARE}.{number:03}", SITE) for number in range(MOST_PATHS + 5)]
    assert len(found(tmp_path, *many)[0].evidence) == MOST_PATHS


def test_firmware_that_a_script_altered_is_a_fault(tmp_path: Path) -> None:
    fault = found(tmp_path, changed(FIRMWARE, SITE))[0]
    assert fault.level is Level.FAULT
    assert "were changed" in fault.what
    assert fault.evidence[0].path == FIRMWARE


@pytest.mark.parametrize("kind", [TraceKind.OVERLAY, TraceKind.STEP])
def test_firmware_of_an_overlay_is_none(kind: TraceKind, tmp_path: Path) -> None:
    one = Trace(FIRMWARE, kind, (BASE, SITE), "tool 2.0", "site")
    assert {finding.level for finding in found(tmp_path, one)} == {Level.FACT}


def test_a_program_that_a_script_altered_is_a_warning(tmp_path: Path) -> None:
    warning = found(tmp_path, changed("/usr/bin/tool", SITE))[0]
    assert warning.level is Level.WARNING
    assert "configure site" in warning.evidence[0].said
