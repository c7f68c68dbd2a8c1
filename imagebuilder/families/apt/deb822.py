# SPDX-License-Identifier: Apache-2.0
"""Reading of deb822(5) text: control files, package records, Release files, .sources files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

ARMOUR = "-----BEGIN PGP SIGNED MESSAGE-----"
SIGNATURE = "-----BEGIN PGP SIGNATURE-----"
# What apt takes from the end of a line before it compares it (_strrstrip() of apt-pkg/strutl.cc).
TRAILING = " \t\r"


def parse_stanzas(text: str) -> Iterator[Mapping[str, str]]:
    """The stanzas of `text`, field names as written; a folded value keeps its line breaks."""
    fields: dict[str, list[str]] = {}
    name = ""
    for line in text.split("\n"):  # apt and dpkg know no other end of a line
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield joined(fields)
            fields, name = {}, ""
        elif line[0] in " \t" and name:
            fields[name].append(line)
        else:
            name, _, value = line.partition(":")
            fields[name] = [value.strip()]
    if fields:
        yield joined(fields)


def joined(fields: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: "\n".join(lines) for name, lines in fields.items()}


def parse_release(text: str) -> Mapping[str, str]:
    """The fields of a Release or (clear-signed) InRelease file that apt has verified.

    Raises ValueError if what is signed cannot be told from what is not: whoever sends the file can
    change the lines around the signed text.
    """
    lines = [line.rstrip(TRAILING) for line in text.split("\n")]
    if lines[0] != ARMOUR:
        return next(parse_stanzas(text), {})
    if "" not in lines or SIGNATURE not in lines:
        raise ValueError("its signed text has no beginning or no end")
    begin, end = lines.index("") + 1, lines.index(SIGNATURE)
    if not all(line.startswith("Hash: ") for line in lines[1 : begin - 1]) or "\0" in text:
        raise ValueError("it has text that is not signed")
    if not (fields := next(parse_stanzas("\n".join(lines[begin:end])), {})):
        raise ValueError("its signed text is empty")
    return fields
