# SPDX-License-Identifier: Apache-2.0
"""What comes to the image when a node boots: mounts of fstab(5) and of units (systemd.mount(5)),
extensions of systemd-sysext(8) and systemd-confext(8), and what is made by tmpfiles.d(5) or by
systemd for a unit.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.config import config_files, config_folders
from imagebuilder.proof.reading.environment import assignments
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.units import FOLDERS, drop_ins
from imagebuilder.proof.subject import Subject, once
from imagebuilder.root import Root

FSTAB = "/etc/fstab"
NFS = ("nfs", "nfs4")
SETTING = re.compile(r"^(What|Where|Type|Options)\s*=\s*(.*?)\s*$", re.MULTILINE)
TMPFILES = config_folders("tmpfiles.d")
OCTAL = re.compile("[0-7]{3,4}")
NOTHING = "-"
# Lines of tmpfiles.d(5) that set the mode and the owner of a path.
MAKES = frozenset("dDqQvezZfFCm")
MADE_FOLDERS = frozenset("dDqQve")
NEW_FOLDER = os.stat_result((stat.S_IFDIR | 0o755, *[0] * 9))
# Folders that systemd makes before a service starts, and where.
MADE = {
    "RuntimeDirectory": "/run",
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
    "ConfigurationDirectory": "/etc",
}
# Kinds of lines of tmpfiles.d(5) that make the path.
MADE_KINDS = re.compile(r"[dDqQvfFCpLcb]")
PARENTS = ("/etc", "/var/lib", "/usr/lib", "/usr/local/lib")
OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
ANY = "_any"
# Names of systemd for those of packages (uname_architecture()).
ARCHITECTURES = {"amd64": "x86-64", "aarch64": "arm64", "x86_64": "x86-64"}


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


@dataclass(frozen=True)
class TmpfilesLine:
    """A line of the file at `place`; `kind` is the letter of its type, without modifiers.

    `mode` is None, and `user` and `group` are empty, where the line leaves them as they are.  `age`
    is that of what is removed, "" if nothing is.
    """

    place: str
    said: str
    kind: str
    path: str
    mode: int | None
    user: str
    group: str
    argument: str
    age: str = ""


@once
def read_tmpfiles(subject: Subject) -> tuple[TmpfilesLine, ...]:
    """Every line in effect, in the order in which the files are read."""
    found: list[TmpfilesLine] = []
    for place in config_files(subject.root, TMPFILES, ".conf"):
        for line in subject.root.text(place).splitlines():
            words = line.split(maxsplit=6)
            if len(words) < 2 or line.lstrip().startswith("#"):
                continue
            kind, path, mode, user, group, age, argument = [*words, *[NOTHING] * 5][:7]
            bits = mode.lstrip(":~")
            found.append(TmpfilesLine(
                place, line.strip(), kind[0], path,
                int(bits, 8) if OCTAL.fullmatch(bits) else None,
                owner(user), owner(group), "" if argument == NOTHING else argument.strip(),
                "" if age == NOTHING else age,
            ))  # fmt: skip
    return tuple(found)


def owner(word: str) -> str:
    """A user or a group; one with a colon counts only for what is new."""
    return "" if word == NOTHING else word.removeprefix(":")


def with_tmpfiles(
    subject: Subject, entries: Mapping[str, os.stat_result]
) -> dict[str, os.stat_result]:
    """Every path as it is after the boot: with the modes and owners that tmpfiles.d(5) sets."""
    found = dict(entries)
    accounts = subject.accounts
    for line in read_tmpfiles(subject):
        path = line.path.rstrip("/")
        if line.kind in MAKES and (
            path in found or (path[:1] == "/" and line.kind in MADE_FOLDERS)
        ):
            info = found.get(path, NEW_FOLDER)
            kept = stat.S_IFMT(info.st_mode)
            new = info.st_mode if line.mode is None else kept | line.mode
            user = accounts.users.get(line.user)
            uid = user.uid if user else info.st_uid
            gid = accounts.groups.get(line.group, info.st_gid)
            found[path] = os.stat_result((new, *info[1:4], uid, gid, *info[6:10]))
    return found


def made_by(unit: LoadedUnit) -> Iterator[str]:
    """The folders that systemd makes for a unit, which belong to its account."""
    for key, top in MADE.items():
        yield from (f"{top}/{word.partition(':')[0]}" for word in unit.words(key))


def made_by_tmpfiles(subject: Subject) -> set[str]:
    """The paths that systemd-tmpfiles makes at boot."""
    return {line.path.rstrip("/") for line in read_tmpfiles(subject) if MADE_KINDS.match(line.kind)}


@dataclass(frozen=True)
class ExtensionKind:
    """What one of the two programs merges: its service, the names of the folders with extensions,
    the parts of the image, where an extension says what it is for, and the level that both have.
    """

    service: str
    folders: str
    parts: tuple[str, ...]
    release: str
    level: str


KINDS = (
    ExtensionKind("systemd-sysext.service", "extensions", ("usr", "opt"),
                  "usr/lib/extension-release.d", "SYSEXT_LEVEL"),
    ExtensionKind("systemd-confext.service", "confexts", ("etc",),
                  "etc/extension-release.d", "CONFEXT_LEVEL"),
)  # fmt: skip


@dataclass(frozen=True)
class Extension:
    """A folder or an image (`is_file`) with files of the kind, at `top`.

    `refusal` is why it is not merged, "" if it is; `release` is the file that says so.
    """

    name: str
    top: str
    kind: ExtensionKind
    is_file: bool
    release: str = ""
    refusal: str = ""


@once
def read_extensions(subject: Subject) -> tuple[Extension, ...]:
    """Those that are merged at boot, or would be if they were for this image."""
    root = subject.root
    found = []
    for kind in (kind for kind in KINDS if kind.service in subject.startup.jobs):
        seen: set[str] = set()
        for folder in (f"{parent}/{kind.folders}" for parent in PARENTS):
            for name in root.names(folder):
                top = f"{folder}/{name}"
                if root.is_file(top):
                    found.append(Extension(name, top, kind, is_file=True))
                elif name not in seen:
                    release = f"{top}/{kind.release}/extension-release.{name}"
                    why = refusal_of(subject, top, kind, release)
                    found.append(
                        Extension(name, top, kind, is_file=False, release=release, refusal=why)
                    )
                seen.add(name)
    return tuple(found)


def refusal_of(subject: Subject, top: str, kind: ExtensionKind, release: str) -> str:
    """Why an extension is not merged (extension_release_validate() of systemd 262)."""
    root = subject.root
    if not root.is_file(release):
        # A file of another name counts if an attribute allows it.
        others = root.names(f"{top}/{kind.release}")
        return "" if others else f"it has no {release.removeprefix(top)}"
    told = dict(assignments(root.text(release)))
    host = dict(assignments(root.text(next(filter(root.is_file, OS_RELEASE), OS_RELEASE[0]))))
    name = subject.image.architecture
    ours, architecture = ARCHITECTURES.get(name, name), told.get("ARCHITECTURE", ANY)
    if architecture not in (ANY, ours):
        return f"it has ARCHITECTURE={architecture}, and the image is for {ours}"
    return differing(told, host, kind.level)


def differing(told: Mapping[str, str], host: Mapping[str, str], level: str) -> str:
    """The first of the settings of two systems that has to agree and does not, "" if all do."""
    name, ours = told.get("ID", ""), host.get("ID", "linux")
    if name == ANY:
        return ""
    if name not in (ours, *host.get("ID_LIKE", "").split()):
        return f"it has {f'ID={name}' if name else 'no ID='}, and os-release has ID={ours}"
    # A rolling release has neither; a level counts before a version.
    key = level if level in told else "VERSION_ID"
    is_rolling = not host.get("VERSION_ID") and not host.get(level)
    if is_rolling or told.get(key) == host.get(key) or (key != level and not host.get(key)):
        return ""
    said, theirs = (f"{key}={each[key]}" if key in each else f"no {key}=" for each in (told, host))
    return f"it has {said}, and os-release has {theirs}"


@once
def merged_files(subject: Subject) -> frozenset[str]:
    """The paths that extensions add, where they are merged."""
    return frozenset(
        path
        for each in read_extensions(subject)
        if not each.is_file and not each.refusal
        for path in files_added(subject.root, each)
    )


def files_added(root: Root, extension: Extension) -> list[str]:
    """What an extension has, by the paths where it is seen."""
    top = extension.top
    return [path.removeprefix(top) for part in extension.kind.parts
            for path in root.walk(f"{top}/{part}")]  # fmt: skip
