# SPDX-License-Identifier: Apache-2.0
"""Variables in /etc/default and /etc/sysconfig that nothing reads.

These files belonged to scripts of init.  A unit reads one by EnvironmentFile=, or a script that it
starts; where neither does, what the file says has no effect, and nothing says so.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import assignments
from imagebuilder.proof.reading.interpreters import EXECUTABLE, SHELL, first_line, runs
from imagebuilder.proof.reading.site import SET_ASIDE
from imagebuilder.proof.reading.units import find_file, find_program
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.files.unread import INIT, SYSV

FOLDERS = ("/etc/default", "/etc/sysconfig")
# Where what reads one may be, the likely folders first, in the others only programs; and what never
# does.
LIKELY = ("/etc/", "/usr/lib/systemd/", "/usr/local/")
OTHERS = ("/usr/", "/opt/", "/srv/", "/root/")
NOT_READERS = (
    "/usr/share/", "/usr/src/", "/usr/include/", "/usr/lib/modules/", "/usr/lib/firmware/",
    "/usr/lib/python3/",
)  # fmt: skip
MOST_BYTES = 8 << 20
# A script that puts the name together, or hands all variables on.
COMPOSED, EXPORTS = (b"/$", b"/%s", b"/{"), b"set -a"


def prove_defaults(subject: Subject) -> Iterator[Finding]:
    """Warnings, one for each file."""
    wanted: dict[str, dict[str, str]] = {}
    for path in (path for folder in FOLDERS for path in subject.root.glob(f"{folder}/*")):
        if is_changed(subject, path):
            told = {n: v for n, v in assignments(subject.root.text(path)) if v.strip()}
            wanted |= {path: told} if told else {}
    if not wanted:
        return
    left = {path: set(names) for path, names in wanted.items()}
    for folders, but in ((LIKELY, ()), (OTHERS, LIKELY)):
        for reader, info in subject.entries.items() if left else ():
            is_meant = reader.startswith(folders) and not reader.startswith((*but, *NOT_READERS))
            is_meant = is_meant and (info.st_mode & EXECUTABLE != 0 or folders == LIKELY)
            if is_meant and stat.S_ISREG(info.st_mode) and info.st_size < MOST_BYTES:
                for path in [each for each in left if each != reader]:
                    left[path] -= read_by(subject, reader, path, left[path])
        left = {path: names for path, names in left.items() if names}
    for path, names in left.items():
        ordered = [name for name in wanted[path] if name in names]
        what = f"{some(ordered)} in {path} {'has' if len(ordered) == 1 else 'have'} no effect: no "
        what += "unit and no program of the image reads it from there"
        hint = "set it where the program reads its settings, such as a drop-in of its unit"
        yield SAY.warning(what, Evidence(path, said=f"{ordered[0]}="), hint=hint)


def is_changed(subject: Subject, path: str) -> bool:
    """Whether a file is a package's that is not as it was shipped, or a site's with the name of a
    package, a service or a program: another one may be for people, or for another machine.
    """
    root, name = subject.root, posixpath.basename(path)
    host, shipped = root.host(path), subject.shipped.get(path)
    if host is None or root.link_at(path) or not root.is_file(path):
        return False
    if shipped:
        return bool(shipped.checksum and not shipped.checksum.is_of(host))
    is_known = name in subject.packages or find_file(root, f"{name}.service")
    is_known = is_known or find_program(root, name)
    return bool(is_known) and not SET_ASIDE.fullmatch(name)


def read_by(subject: Subject, reader: str, path: str, names: set[str]) -> set[str]:
    """Those of some variables that a file reads: all, unless it is a shell script that mentions
    only some.
    """
    is_of_init = reader.startswith(f"{INIT}/") and not subject.root.is_file(SYSV)
    content = None if is_of_init else subject.root.map(reader)
    if not content:
        return set()
    folder, name = posixpath.split(path)
    is_named = content.find(path.encode()) >= 0
    is_composed = any(content.find(folder.encode() + mark) >= 0 for mark in COMPOSED)
    if not is_named and not (is_composed and content.find(name.encode()) >= 0):
        return set()
    if not runs(SHELL, first_line(content)) or content.find(EXPORTS) >= 0:
        return names
    return {each for each in names if content.find(each.encode()) >= 0}
