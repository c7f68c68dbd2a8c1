# SPDX-License-Identifier: Apache-2.0
"""Headings of systemd's own settings that its daemons do not know: what follows is ignored."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import PARENTS, assignments
from imagebuilder.proof.reading.site import site_files
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# The one section of each file, by its manual page (timesyncd.conf(5) and so on).
SECTIONS = {
    "coredump.conf": "Coredump",
    "journald.conf": "Journal",
    "logind.conf": "Login",
    "oomd.conf": "OOM",
    "pstore.conf": "PStore",
    "resolved.conf": "Resolve",
    "sleep.conf": "Sleep",
    "system.conf": "Manager",
    "timesyncd.conf": "Time",
    "user.conf": "Manager",
}


def prove_sections(subject: Subject) -> Iterator[Finding]:
    """Warnings, one for each heading of a file."""
    for name, section in SECTIONS.items():
        for parent in PARENTS:
            for pattern in (f"{parent}/systemd/{name}", f"{parent}/systemd/{name}.d/*.conf"):
                for path in site_files(subject, pattern):
                    text = subject.root.text(path)
                    lost = {s: f"{k}={v}" for s, k, v in assignments(text) if s != section}
                    for other, said in lost.items():
                        if not other.startswith("X-"):
                            heading = f"[{other}]" if other else "no heading"
                            what = f"{said} of {path} has no effect: it stands below {heading}, "
                            what += f"and systemd reads the section [{section}] alone"
                            hint = f"put it below [{section}]"
                            yield SAY.warning(what, Evidence(path, other, said=said), hint=hint)
