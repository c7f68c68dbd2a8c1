# SPDX-License-Identifier: Apache-2.0
"""The libraries that every program loads before its own: /etc/ld.so.preload (ld.so(8))."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.libraries import SAY
from imagebuilder.proof.reading.libraries import Search
from imagebuilder.proof.say import some

PRELOAD = "/etc/ld.so.preload"


def prove_preload(search: Search) -> Iterator[Finding]:
    """A warning of libraries that no program can load: ld.so complains, and goes on without."""
    lines = search.files.root.text(PRELOAD).replace(":", " ").splitlines()
    names = dict.fromkeys(word for line in lines for word in line.partition("#")[0].split())
    missing = [name for name in names if "$" not in name and not search.named(name)]
    if missing:
        what = f"{PRELOAD} names {some(missing)}, which the image does not have for its "
        what += "processor: every program prints an error and runs without it"
        hint = "install it, or remove its name"
        yield SAY.warning(what, Evidence(PRELOAD, said=some(missing)), hint=hint)
