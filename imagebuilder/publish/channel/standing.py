# SPDX-License-Identifier: Apache-2.0
"""What the boot tests of a release say about the bytes that are published now.

    reports/PROFILE/VERSION/*/report.json  +  SHA256SUMS, the root's commit  ->  Standing

Reports are long and a list of releases needs all of them, so the result is cached beside them with
the state of the files it was read from.  They are read again only if that state has changed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from imagebuilder.decode import (
    decode_box,
    encode_box,
    find_object,
    keep_object,
)
from imagebuilder.digest import digest_of
from imagebuilder.errors import InputError
from imagebuilder.folders import folders_in
from imagebuilder.image.types import find_image
from imagebuilder.publish.release.content import identify, release_digests
from imagebuilder.report.save import FILE, read_reports
from imagebuilder.report.standing import Standing, find_standing
from imagebuilder.report.types import REPORT, Report
from imagebuilder.tree import ReleaseName, Tree

MEMO = ".standing.json"
MEMO_FORMAT = 3


def root_kind(tree: Tree, release: ReleaseName) -> str:
    """The kind of root that nodes of a release boot by default."""
    image = find_image(tree.release(release))
    return image.boot.root if image else "nfs"  # a damaged release is refused elsewhere


def judge(tree: Tree, release: ReleaseName, reports: Sequence[Report]) -> Standing:
    """What these reports, oldest first, say about the bytes of a release."""
    digests = release_digests(tree, release)
    return find_standing(reports, digests, root_kind(tree, release))


def release_standing(tree: Tree, release: ReleaseName) -> Standing:
    """The standing of a release without its verdict, from the cache if possible."""
    top = tree.reports(release)
    if not (names := folders_in(top)):
        return judge(tree, release, ())
    seen = digest_of({
        "format": [MEMO_FORMAT, REPORT.schema],
        "reports": [[name, identify(top / name / FILE)] for name in names],
        "bytes": release_digests(tree, release),
        "root": root_kind(tree, release),
    })  # fmt: skip
    if known := read_memo(top / MEMO, seen):
        return known
    standing = judge(tree, release, read_reports(top).reports)
    memo = encode_box(replace(standing, verdict=None))
    keep_object(top / MEMO, {"seen": seen, "standing": memo})
    return standing


def read_memo(path: Path, seen: str) -> Standing | None:
    """The cached standing for exactly this state; None if it is for another one, or damaged."""
    value = find_object(path)
    if value is None or value.get("seen") != seen:
        return None
    try:
        return decode_box(Standing, value.get("standing"), os.fspath(path))
    except InputError:
        return None
