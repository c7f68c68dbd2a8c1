# SPDX-License-Identifier: Apache-2.0
"""The suites that have a version of a package: `apt-cache madison` (apt-cache(8))."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imagebuilder.families.apt.apt import Apt
from imagebuilder.lock.changes import Suites

# A row: package, version (right-aligned), and an index's address, suite and component.
OFFER = re.compile(r"\s*(\S+) \| +(\S+) \| \S+ (\S+) \S+ Packages")


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
