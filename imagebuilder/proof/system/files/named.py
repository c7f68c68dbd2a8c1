# SPDX-License-Identifier: Apache-2.0
"""Files that a site's settings name: libraries that are not there, licences of one machine."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.services.start import is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

MOST = 64 << 10  # bytes of a file of settings
LIBRARY = re.compile(r"(?<![\w./*$+@-])(?P<path>/(?!/)[\w./+@-]+\.so(\.\d+)*)(?![\w./*])")
# Said of a library that may be missing: by Slurm, PAM, rsyslog and others.
OPTIONAL = re.compile(r"\boptional\b|^[ \t]*-")
COMMENT = re.compile(r"\s*([#;]|//)")
# What other questions read, or nothing reads.
ELSEWHERE = re.compile(
    r"/etc/(cdi|pam\.d|ld\.so|alternatives|ssl)/?|.*\.(bak|old|orig|example|rej)$"
)
# FlexNet and RLM: the machine that a licence is for, by the MAC address of a NIC.
LICENCES = (".lic", "/license.dat")
MACHINE = re.compile(r"\bHOSTID=\"?(?=[0-9a-f]*\d)[0-9a-f]{12}\b", re.IGNORECASE)


def prove_named_files(subject: Subject) -> Iterator[Finding]:
    """Warnings."""
    for path, info in subject.entries.items():
        if not stat.S_ISREG(info.st_mode) or path in subject.shipped or info.st_size > MOST:
            continue
        if path.startswith("/etc/") and not ELSEWHERE.match(path):
            yield from prove_libraries(subject, path)
        if path.endswith(LICENCES):
            yield from prove_licence(subject, path)


def prove_libraries(subject: Subject, path: str) -> Iterator[Finding]:
    for line in subject.root.text(path).splitlines():
        if COMMENT.match(line) or OPTIONAL.search(line):
            continue
        for found in LIBRARY.finditer(line):
            library = found["path"]
            if not is_there(subject, library) and ".so/" not in library:
                what = f"{path} names {library}, which is not in the image"
                hint = "install the package that has it, or remove that line"
                yield SAY.warning(what, Evidence(path, said=line.strip()), hint=hint)


def prove_licence(subject: Subject, path: str) -> Iterator[Finding]:
    found = MACHINE.search(subject.root.text(path))
    # A server of licences is one machine, and others ask it.
    if found:
        what = f"{path} is a licence for one machine, by its MAC address: the other nodes of this "
        what += "image have none"
        hint = "use a licence server, or keep the licence of each node on its disk"
        yield SAY.warning(what, Evidence(path, said=found[0]), hint=hint)
