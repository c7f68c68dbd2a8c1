# SPDX-License-Identifier: Apache-2.0
"""A site's folders of drop-ins and of wishes (`.wants`) for units that the image does not have."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from difflib import get_close_matches

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import PARENTS
from imagebuilder.proof.reading.site import site_files
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

FOLDER = re.compile(
    r"(?P<unit>.+\.(?P<kind>service|socket|target|timer|path))\.(d|wants|requires|upholds)"
)
OF_UNITS = (".d", ".wants", ".requires", ".upholds")
NEAR = 0.85
MOST = 50  # folders whose unit is guessed: each is compared with every unit


def prove_namesakes(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: systemd reads such a folder only for a unit of that name (systemd.unit(5))."""
    folders = {f"{parent}/systemd/system" for parent in PARENTS}
    files = {name for folder in folders for name in subject.root.names(folder)}
    units = {name for name in files | {*startup.units} if not name.endswith(OF_UNITS)}
    told: set[str] = set()
    for folder in sorted(folders):
        for path in site_files(subject, f"{folder}/*.*/*"):
            place = posixpath.dirname(path)
            match = FOLDER.fullmatch(posixpath.basename(place))
            if match is None or place in told or is_for_some(match["unit"], match["kind"], units):
                continue
            told.add(place)
            meant = units if len(told) <= MOST else ()
            near = get_close_matches(match["unit"], meant, n=1, cutoff=NEAR)
            what = f"{place} has no effect: the image has no unit {match['unit']}"
            hint = f"rename it, if {near[0]} is meant" if near else "remove it, or install the unit"
            yield SAY.warning(what, Evidence(path), hint=hint)


def is_for_some(unit: str, kind: str, units: set[str]) -> bool:
    """Whether there is such a unit, its template, or one whose name begins so: `llama-.service`."""
    name, is_instance, _ = unit.partition("@")
    if unit in units or (is_instance and f"{name}@.{kind}" in units):
        return True
    begin = unit.removesuffix(f".{kind}")
    return begin.endswith("-") and any(
        each.startswith(begin) and each.endswith(f".{kind}") for each in units
    )
