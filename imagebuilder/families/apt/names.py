# SPDX-License-Identifier: Apache-2.0
"""Which suites have a package, and suggestions for those that no source has: apt-cache(8)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imagebuilder.errors import Fault
from imagebuilder.families.apt.apt import Apt
from imagebuilder.families.nearest import mapping_hint, nearest_names
from imagebuilder.lock.changes import Suites
from imagebuilder.lock.request import Request

UNKNOWN = re.compile(
    r"^E: (?:Unable to locate package (\S+)"
    r"|Package '([^']+)' has no installation candidate"
    r"|Version '([^']+)' for '([^']+)' was not found)",
    re.MULTILINE,
)
VERSIONS = 6
# A row: package, version (right-aligned), and an index's address, suite and component.
OFFER = re.compile(r"\s*(\S+) \| +(\S+) \| \S+ (\S+) \S+ Packages")


def unknown_packages(apt: Apt, options: Sequence[str], requests: Sequence[Request]) -> list[Fault]:
    """A fault for every package of any layer that no source has."""
    words = sorted({word for request in requests for word in request.packages})
    if not words:
        return []
    simulate = ["apt-get", *options, "install", "--simulate", "--yes", "--", *words]
    done = apt.attempt(simulate)
    unknown: dict[str, str] = {}
    for name, virtual, version, package in UNKNOWN.findall(done.stderr):
        if version:
            unknown[f"{package}={version}"] = f"no source has {package} at version {version}"
        elif virtual:
            unknown[virtual] = f"{virtual} is a virtual package, and no source has one for it"
        else:
            unknown[name] = f"no source has a package named {name}"
    if not unknown:
        return []
    names = apt.run(["apt-cache", *options, "pkgnames"]).stdout.split()
    return [
        Fault(
            request.place_of(word.partition("=")[0]),
            unknown[word],
            nearest(apt, options, word.partition("=")[0], names) + mapping_hint(request, word),
        )
        for request in requests
        for word in dict.fromkeys(request.packages)
        if word in unknown
    ]


def nearest(apt: Apt, options: Sequence[str], name: str, names: Sequence[str]) -> str:
    """A hint with the versions of an existing package, or with the names closest to `name`."""
    if name not in names:
        return nearest_names(name, names)
    shown = apt.run(["apt-cache", *options, "madison", "--", name]).stdout
    versions = dict.fromkeys(line.split("|")[1].strip() for line in shown.splitlines())
    return f"the sources have {', '.join(list(versions)[:VERSIONS])}; use one of them"


def find_suites(apt: Apt, names: Sequence[str], options: Sequence[str] = ()) -> Suites:
    """The suites of every version of these packages in apt's lists."""
    return parse_offers(apt.run(["apt-cache", *options, "madison", "--", *names]).stdout)


def parse_offers(text: str) -> Suites:
    """The suites in the output of `apt-cache madison`, without source packages."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        if match := OFFER.fullmatch(line):
            suite = match[3].rpartition("/")[0]
            found.setdefault((match[1], match[2]), []).append(suite)
    return found
