# SPDX-License-Identifier: Apache-2.0
"""Where is every file from?  What no package, overlay or step answers for is a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.provenance.types import CONTENT, Provenance, Trace, TraceKind
from imagebuilder.proof.say import Say
from imagebuilder.proof.subject import Subject
from imagebuilder.ui import format_count

# What the kernel loads as it is.
LOADED = ("/usr/lib/modules/", "/usr/lib/firmware/")
# Steps of every build; what they change is their purpose.
OWN = ("slim", "finalise")
MOST_PATHS = 50  # that a proof, which every manifest has, tells of one finding
say = Say(Question.PROVENANCE)


def prove_provenance(subject: Subject) -> Iterator[Finding]:
    """None where the layers of the image are not at hand."""
    provenance = subject.provenance
    if provenance is None:
        return
    traces = sorted(provenance.traces.values(), key=lambda trace: trace.path)
    strange = [trace for trace in traces if trace.kind is TraceKind.UNEXPLAINED]
    if strange:
        yield say.fault(
            f"{format_count(len(strange), 'path')} changed after the build, by no step of it",
            *evidence(strange),
            hint="find out who did it, then build and publish the image again",
        )
    changed = [trace for trace in traces if trace.kind is TraceKind.CHANGED]
    altered = [trace for trace in changed if is_altered(trace, provenance)]
    if loaded := [trace for trace in altered if trace.path.startswith(LOADED)]:
        yield say.fault(
            "modules or firmware of packages have other contents, which no overlay places",
            *evidence(loaded),
            hint="put the other file below files/ of an overlay, with a path in "
            "/usr/lib/firmware/updates or /usr/lib/modules/VERSION/updates",
        )
    if programs := [trace for trace in altered if trace not in loaded]:
        yield say.warning(
            "scripts changed files below /usr that packages ship",
            *evidence(programs),
            hint="put the other file below files/ of the overlay, so that it is known what it is",
        )
    yield say.fact(summary(provenance), *evidence(t for t in changed if t not in altered))
    for step, paths in sorted(provenance.missing.items()):
        who = f"removed by {step}" if step else "never installed: excluded, or removed at once"
        yield say.fact(f"{format_count(len(paths), 'path')} that packages ship {who}")


def is_altered(trace: Trace, provenance: Provenance) -> bool:
    """Whether a step that is there for something else gave a file of a package another content."""
    return (
        trace.change == CONTENT
        and trace.path.startswith("/usr/")
        and not {trace.step} <= {*OWN, *provenance.installing}
    )


def evidence(traces: Iterable[Trace]) -> list[Evidence]:
    """Each path with who answers for it, as far as a proof has room."""
    return [Evidence(trace.path, said=str(trace)) for trace in traces][:MOST_PATHS]


def summary(provenance: Provenance) -> str:
    """How many paths are from where, in a line."""
    many = Counter(trace.kind for trace in provenance.traces.values())
    told = (
        (TraceKind.PACKAGE, "as packages ship them"),
        (TraceKind.OVERLAY, "as overlays place them"),
        (TraceKind.STEP, "made by steps"),
        (TraceKind.CHANGED, "of packages, changed by steps"),
    )
    parts = [f"{many[kind]:,} {words}" for kind, words in told if many[kind]]
    return f"{format_count(many.total(), 'path')}: {', '.join(parts)}"
