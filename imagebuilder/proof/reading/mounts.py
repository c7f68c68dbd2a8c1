# SPDX-License-Identifier: Apache-2.0
"""What a site mounts: fstab(5), and units of systemd with their drop-ins (systemd.mount(5))."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.units import FOLDERS, drop_ins
from imagebuilder.proof.subject import Subject, once
from imagebuilder.root import Root

FSTAB = "/etc/fstab"
NFS = ("nfs", "nfs4")
SETTING = re.compile(r"^(What|Where|Type|Options)\s*=\s*(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class SiteMount:
    """A mount, by its place in fstab or the name of its unit; `path` has its `line`.

    `place` is the folder that it is mounted at, "" for the root.
    """

    path: str
    name: str
    device: str
    kind: str
    options: str
    line: str
    place: str

    @property
    def forbids_execution(self) -> bool:
        """Whether nothing on it can be executed or mapped as code: the last option counts, and
        `user` and `users` mean noexec too (mount(8)).
        """
        words = [w for w in self.options.split(",") if w in ("exec", "noexec", "user", "users")]
        return bool(words) and words[-1] != "exec"

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.path, said=self.line)


@once
def find_mounts(subject: Subject) -> tuple[SiteMount, ...]:
    """The mounts of fstab(5) and of units, with the unit's drop-ins."""
    return tuple(read_mounts(subject.root))


def read_mounts(root: Root) -> Iterator[SiteMount]:
    for line in root.text(FSTAB).splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 2:
            device, place, kind, options = (*words, "defaults")[:4]
            yield SiteMount(FSTAB, place, device, kind, options, line.strip(), place.rstrip("/"))
    for path in root.glob(*(f"{folder}/*.mount" for folder in FOLDERS)):
        unit = posixpath.basename(path)
        texts = [(each, root.text(each)) for each in (path, *drop_ins(root, unit))]
        found = {k: (p, v) for p, text in texts for k, v in SETTING.findall(text)}
        where, options = found.get("Options", (path, ""))
        device, kind, place = (found.get(k, ("", ""))[1] for k in ("What", "Type", "Where"))
        line = options or f"Type={kind}"
        yield SiteMount(where, unit, device, kind or "auto", options, line, place.rstrip("/"))


def mount_of(mounts: Iterable[SiteMount], folder: str) -> SiteMount | None:
    """What is mounted at a folder or above it; None for the root."""
    found = (m for m in mounts if m.place and f"{folder}/".startswith(f"{m.place}/"))
    return max(found, key=lambda mount: len(mount.place), default=None)
