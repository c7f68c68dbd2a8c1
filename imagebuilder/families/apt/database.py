# SPDX-License-Identifier: Apache-2.0
"""Query dpkg's database inside a root, or read it from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from imagebuilder.families.apt.deb822 import parse_stanzas
from imagebuilder.families.protocol import Installed
from imagebuilder.families.shipped import (
    Checksum,
    ChecksumKind,
    RootFiles,
    ShippedFile,
    places_in,
    text_of,
)
from imagebuilder.workspace import Workspace

INFO = "/var/lib/dpkg/info"
STATUS = "/var/lib/dpkg/status"
DIVERSIONS = "/var/lib/dpkg/diversions"
FORM = "${db:Status-Abbrev} ${Package}:${Architecture} ${Version} ${Installed-Size} .\\n"
LIST_PACKAGES = ("dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\\n")
SIZE = re.compile(r"[0-9]{1,18}")
# A line of the status file's Conffiles: the path, the shipped file's checksum, flags.
CONFFILE = re.compile(r"(/.+?) ([0-9a-f]{32})((?: [a-z-]+)*)")


def find_installed(workspace: Workspace) -> Mapping[str, Installed]:
    shown = workspace.ask(["dpkg-query", "--show", f"--showformat={FORM}"]).stdout
    rows = [line.split() for line in shown.splitlines()]
    # Installed-Size is in KiB and optional (deb-control(5)).
    return {
        row[1]: Installed(
            row[2], int(row[3]) * 1024 if SIZE.fullmatch(row[3]) else 0, row[0] == "ii"
        )
        for row in rows
    }


def read_shipped(root: RootFiles) -> Mapping[str, ShippedFile]:
    """Family.shipped_files() from dpkg's lists of files, md5sums (deb-md5sums(5)) and conffiles.

    dpkg's own records of a package count as files of the package.
    """
    place = places_in(root)
    diversions = read_diversions(root)
    found: dict[str, ShippedFile] = {}
    for name in root.names(INFO):
        stem, _, kind = name.rpartition(".")
        record = ShippedFile(stem.partition(":")[0])
        found[f"{INFO}/{name}"] = record
        if kind != "list":
            continue
        sums = read_sums(text_of(root, f"{INFO}/{stem}.md5sums"))
        for path in text_of(root, f"{INFO}/{name}").splitlines():
            if path == "/.":
                continue
            diverted, by = diversions.get(path, (path, record.package))
            checksum = sums.get(path)
            shipped = ShippedFile(record.package, checksum) if checksum else record
            found[place(diverted if by != record.package else path)] = shipped
    for path, shipped, current in read_conffiles(root):
        if current or place(path) not in found:  # another package may ship it by now
            found[place(path)] = shipped
    return found


def read_diversions(root: RootFiles) -> Mapping[str, tuple[str, str]]:
    """Where dpkg diverts a path, and the package whose file is not diverted (dpkg-divert(1))."""
    lines = text_of(root, DIVERSIONS).splitlines()
    return {
        path: (instead, package)
        for path, instead, package in zip(lines[::3], lines[1::3], lines[2::3], strict=False)
    }


def read_sums(text: str) -> Mapping[str, Checksum]:
    """The checksums in a package's md5sums, by path."""
    rows = (line.partition("  ") for line in text.splitlines())
    return {f"/{path}": Checksum(ChecksumKind.MD5, digest) for digest, _, path in rows}


def read_conffiles(root: RootFiles) -> Iterator[tuple[str, ShippedFile, bool]]:
    """The configuration files that packages shipped, and whether they still do."""
    for stanza in parse_stanzas(text_of(root, STATUS)):
        for line in stanza.get("Conffiles", "").splitlines():
            if match := CONFFILE.fullmatch(line.strip()):
                checksum = Checksum(ChecksumKind.MD5, match[2])
                shipped = ShippedFile(stanza.get("Package", ""), checksum, config=True)
                yield match[1], shipped, "obsolete" not in match[3]


def read_versions(root: RootFiles) -> Mapping[str, str]:
    """The versions of the installed packages, by name."""
    return {
        stanza["Package"]: stanza["Version"]
        for stanza in parse_stanzas(text_of(root, STATUS))
        if "Package" in stanza and "Version" in stanza
        if stanza.get("Status", "").endswith(" installed")
    }
