# SPDX-License-Identifier: Apache-2.0
"""Reading of deb822(5) text: control files, package records, Release files, .sources files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

ARMOUR = "-----BEGIN PGP SIGNED MESSAGE-----"
SIGNATURE = "-----BEGIN PGP SIGNATURE-----"


def parse_stanzas(text: str) -> Iterator[Mapping[str, str]]:
    """The stanzas of `text`, field names as written; a folded value keeps its line breaks."""
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0] in " \t" and name:
            fields[name] += f"\n{line}"
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def parse_release(text: str) -> Mapping[str, str]:
    """The fields of a Release or (clear-signed) InRelease file that apt has verified."""
    if text.startswith(ARMOUR):
        text = text.partition("\n\n")[2].partition(SIGNATURE)[0]
    return next(parse_stanzas(text), {})
