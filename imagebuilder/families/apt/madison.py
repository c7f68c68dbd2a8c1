# SPDX-License-Identifier: Apache-2.0
"""Which suites have a package in which version: `apt-cache madison` (apt-cache(8))."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imagebuilder.families.apt.apt import Apt
from imagebuilder.lock.changes import Suites

# A row: package, version (to the right), and of an index its address, suite and component.
OFFER = re.compile(r"\s*(\S+) \| +(\S+) \| \S+ (\S+) \S+ Packages")


def find_suites(apt: Apt, names: Sequence[str], options: Sequence[str] = ()) -> Suites:
    """The suites of every version of these packages, as apt's lists have them."""
    return parse_offers(apt.run(["apt-cache", *options, "madison", "--", *names]).stdout)


def parse_offers(said: str) -> Suites:
    """The suites in what `apt-cache madison` says; source packages do not count."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in said.splitlines():
        if match := OFFER.fullmatch(line):
            suite = match[3].rpartition("/")[0]
            found.setdefault((match[1], match[2]), []).append(suite)
    return found
