# SPDX-License-Identifier: Apache-2.0
"""Extensions that systemd-sysext(8) and systemd-confext(8) merge over the image at boot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from imagebuilder.proof.reading.environment import assignments
from imagebuilder.proof.subject import Subject, once
from imagebuilder.root import Root

PARENTS = ("/etc", "/var/lib", "/usr/lib", "/usr/local/lib")
OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
ANY = "_any"
# Names of systemd for those of packages (uname_architecture()).
ARCHITECTURES = {"amd64": "x86-64", "aarch64": "arm64", "x86_64": "x86-64"}


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
    """Why an extension is not merged (extension_release_validate() of systemd's
    src/shared/extension-util.c; tried with systemd 262).
    """
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
        for path in files_of(subject.root, each)
    )


def files_of(root: Root, extension: Extension) -> list[str]:
    """What an extension has, by the paths where it is seen."""
    top = extension.top
    return [path.removeprefix(top) for part in extension.kind.parts
            for path in root.walk(f"{top}/{part}")]  # fmt: skip
