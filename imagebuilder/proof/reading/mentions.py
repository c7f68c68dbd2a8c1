# SPDX-License-Identifier: Apache-2.0
"""Which settings and scripts of an image name a path."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping

from imagebuilder.proof.subject import Subject, once

MOST = 64 << 10  # bytes of a file of settings
OWN = ("/usr/local/", "/usr/lib/systemd/", "/usr/libexec/", "/opt/", "/srv/")
# Links to certificates and what only caches have.
ELSEWHERE = ("/etc/ssl/certs/", "/etc/alternatives/")
SUFFIX = re.compile(r".*\.(so[\d.]*|pyc?|crt|pem|cer|key|js|html?|css|md|png|svg|json\.gz)")


@once
def settings_texts(subject: Subject) -> Mapping[str, str]:
    """The small texts of /etc, and those of the site elsewhere, by path."""
    found: dict[str, str] = {}
    for path, info in subject.entries.items():
        is_own = path.startswith(OWN) and path not in subject.shipped
        is_text = stat.S_ISREG(info.st_mode) and info.st_size <= MOST and not SUFFIX.fullmatch(path)
        if is_text and (is_own or path.startswith("/etc/")) and not path.startswith(ELSEWHERE):
            found[path] = subject.root.text(path)
    return found


def naming(subject: Subject, path: str) -> str:
    """The first file that names a path, or the folder that it is in; "" if none does."""
    folder = path.rpartition("/")[0]
    named = re.compile(
        rf"(?<![\w./-])(?:{re.escape(path)}(?![\w.-])|{re.escape(folder)}/?(?![\w./-]))"
    )
    texts = settings_texts(subject).items()
    lines = ((name, line) for name, text in texts if folder in text for line in text.splitlines())
    return next((name for name, line in lines if not line.lstrip().startswith(("#", ";"))
                 and named.search(line)), "")  # fmt: skip
