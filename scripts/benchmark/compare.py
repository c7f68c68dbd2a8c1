# SPDX-License-Identifier: Apache-2.0
"""Another builder for the same lock, and what differs between two images that must not."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.process import Word, run
from imagebuilder.store.repository import Store

# The other side of the date line, and the Turkish i.
OTHER_ZONE, OTHER_LOCALE, OTHER_UMASK = "Pacific/Kiritimati", "tr_TR.ISO-8859-9", "077"
AS_ANOTHER = f'umask {OTHER_UMASK}; hostname another-builder; exec "$@"'
# A line of `ostree ls`: type and mode, owner, size, checksum, attributes, path.
LISTED = re.compile(r"^(?P<what>.*?\}) (?P<path>/.*)$")
CHECKSUMS = re.compile(r" [0-9a-f]{64}")
PARTS: Mapping[str, tuple[str, ...]] = {
    "root": ("root", "commit"),
    "early": ("kernel", "early"),
    "initrd": ("kernel", "initrd", "sha256"),
    "kernel": ("kernel", "vmlinuz", "sha256"),
}


@dataclass(frozen=True)
class Stored:
    """An image of a store and its manifest."""

    store: Store
    manifest: Mapping[str, Json]

    @property
    def root(self) -> str:
        """The commit of its root."""
        return str(find(self.manifest, PARTS["root"]))


def another_environment(folder: Path) -> dict[str, str]:
    """Time zone, locale and TMPDIR (in `folder`) of the other builder.

    The locale is made here, so that no host needs to have it; without the sources of locales it is
    unknown, which programs take for C.
    """
    temporary, locales = folder / "another place", folder / "locales"
    for path in (temporary, locales):
        path.mkdir(parents=True, exist_ok=True)
    language, _, charset = OTHER_LOCALE.partition(".")
    run(["localedef", "-i", language, "-f", charset, locales / OTHER_LOCALE], check=False)
    return {
        "LOCPATH": os.fspath(locales),
        "TZ": OTHER_ZONE,
        "LC_ALL": OTHER_LOCALE,
        "LANG": OTHER_LOCALE,
        "LANGUAGE": "tr:de",
        "TMPDIR": os.fspath(temporary),
    }


def on_another(argv: Sequence[Word]) -> list[Word]:
    """`argv` with another umask and host name, in a namespace of its own, on one core."""
    core = min(os.sched_getaffinity(0))
    return [
        "unshare", "--uts", "--", "sh", "-c", AS_ANOTHER, "sh",
        "taskset", "--cpu-list", str(core), *argv,
    ]  # fmt: skip


def find(value: Json, names: Sequence[str]) -> Json:
    """What stands in nested JSON objects under `names`, None if the last one is not there."""
    for name in names:
        assert isinstance(value, Mapping)
        value = value.get(name)
    return value


def differing_parts(one: Mapping[str, Json], other: Mapping[str, Json]) -> tuple[str, ...]:
    """Which parts of two manifests differ: those of PARTS, or else the rest of it."""
    parts = tuple(name for name, at in PARTS.items() if find(one, at) != find(other, at))
    return parts or (() if one == other else ("manifest",))


def differing_lines(one: str, other: str) -> tuple[str, ...]:
    """The paths that differ between two listings of `ostree ls`, with both sides' metadata.

    The checksum of a folder is left out: it differs with everything below it.
    """
    before, after = parse_listing(one), parse_listing(other)
    return tuple(
        f"{path}: {before.get(path, 'absent')} | {after.get(path, 'absent')}"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    )


def parse_listing(text: str) -> dict[str, str]:
    """Path and metadata of each line of `ostree ls --recursive --checksum --xattrs`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := LISTED.match(line):
            what = match["what"]
            found[match["path"]] = CHECKSUMS.sub("", what) if what.startswith("d") else what
    return found


def differing_paths(one: Stored, other: Stored) -> tuple[str, ...]:
    """The files and folders of two roots that differ."""
    return differing_lines(list_tree(one), list_tree(other))


def list_tree(image: Stored) -> str:
    """Every path of a root with all that ostree keeps of it."""
    return image.store.ostree("ls", "--recursive", "--checksum", "--xattrs", image.root)
