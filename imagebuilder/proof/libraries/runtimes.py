# SPDX-License-Identifier: Apache-2.0
"""Whether the parts of a card's runtime fit each other."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.libraries import SAY
from imagebuilder.proof.libraries.closure import Closure

# Those of which a process may have one version.
RUNTIMES = frozenset(("libamdhip64", "libhsa-runtime64", "libcudart", "librocblas", "libcublas"))
# XRT's own interface between these changes with every release.
XRT = re.compile(r"libxrt_\w+\.so\.(\d+\.\d+)\.\d+")


def prove_runtimes(closure: Closure, declared: Mapping[str, str]) -> Iterator[Finding]:
    """Warnings of two versions of a runtime in one process."""
    told: set[tuple[str, ...]] = set()
    for path, why in declared.items():
        versions: dict[str, dict[str, str]] = {}
        for other in closure.reached({path: why}):
            stem, _, version = posixpath.basename(other).partition(".so.")
            if stem in RUNTIMES:
                versions.setdefault(stem, {})[version.partition(".")[0]] = other
        for stem, found in versions.items():
            pair = tuple(sorted(found.values()))
            if len(found) > 1 and pair not in told:
                told.add(pair)
                what = f"{path} loads two versions of {stem} ({' and '.join(pair)}): one does not "
                what += "know the memory and streams of the other"
                hint = "install libraries of one release of the runtime"
                yield SAY.warning(what, *map(Evidence, pair), hint=hint)


def prove_releases(closure: Closure) -> Iterator[Finding]:
    """A warning of libraries of XRT of several releases."""
    found: dict[str, str] = {}
    for path in closure.files.native:
        if match := XRT.fullmatch(posixpath.basename(path)):
            found.setdefault(match[1], path)
    if len(found) > 1:
        what = f"libraries of XRT are of releases {' and '.join(sorted(found))}: they only work "
        what += "with those of their own release"
        hint = "install all packages of XRT in one version"
        yield SAY.warning(what, *map(Evidence, found.values()), hint=hint)
