# SPDX-License-Identifier: Apache-2.0
"""The origin of every file.  One that no package, overlay or step accounts for is a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from imagebuilder.image.proof import Evidence, Findings, fact, fault, warning
from imagebuilder.proof.reading.provenance import CONTENT, Provenance, Trace, TraceKind
from imagebuilder.proof.subject import Subject
from imagebuilder.ui import format_count

# Files that the kernel loads.
LOADED = ("/usr/lib/modules/", "/usr/lib/firmware/")
# Steps of every build whose purpose is to change files.
OWN = ("slim", "finalise")
MOST_PATHS = 50  # per finding, because every manifest contains the proof


def prove_provenance(subject: Subject) -> Findings:
    """No finding if the layers of the image are not available."""
    provenance = subject.provenance
    if provenance is None:
        return
    traces = sorted(provenance.traces.values(), key=lambda trace: trace.path)
    changed = [trace for trace in traces if trace.kind is TraceKind.CHANGED]
    altered = [trace for trace in changed if is_altered(trace, provenance)]
    if loaded := [trace for trace in altered if trace.path.startswith(LOADED)]:
        what = "modules or firmware of packages were changed, but no overlay places them"
        hint = "put your file below files/ of an overlay, in /usr/lib/firmware/updates or "
        hint += "/usr/lib/modules/VERSION/updates"
        yield fault(what, *evidence(loaded), hint=hint)
    if programs := [trace for trace in altered if trace not in loaded]:
        what = "scripts changed files below /usr that packages ship"
        hint = "put your file below files/ of the overlay, so that its origin is known"
        yield warning(what, *evidence(programs), hint=hint)
    yield fact(summary(provenance), *evidence(t for t in changed if t not in altered))
    for step, paths in sorted(provenance.missing.items()):
        who = f"removed by {step}" if step else "never installed, or removed immediately"
        yield fact(f"{format_count(len(paths), 'path')} of packages {who}")


def is_altered(trace: Trace, provenance: Provenance) -> bool:
    """Whether a step with another purpose changed the content of a package's file."""
    return (
        trace.change == CONTENT
        and trace.path.startswith("/usr/")
        and not {trace.step} <= {*OWN, *provenance.installing}
    )


def evidence(traces: Iterable[Trace]) -> list[Evidence]:
    """The first paths, each with its origin."""
    return [Evidence(trace.path, said=str(trace)) for trace in traces][:MOST_PATHS]


def summary(provenance: Provenance) -> str:
    """One line with the number of paths of each origin."""
    many = Counter(trace.kind for trace in provenance.traces.values())
    labels = (
        (TraceKind.PACKAGE, "as packages ship them"),
        (TraceKind.OVERLAY, "as overlays place them"),
        (TraceKind.STEP, "made by steps"),
        (TraceKind.CHANGED, "of packages, changed by steps"),
    )
    parts = [f"{many[kind]:,} {words}" for kind, words in labels if many[kind]]
    return f"{format_count(many.total(), 'path')}: {', '.join(parts)}"
