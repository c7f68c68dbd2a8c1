# SPDX-License-Identifier: Apache-2.0
"""The kernel among the files of packages."""

from __future__ import annotations

import re

from imagebuilder.errors import InputError
from imagebuilder.ui import format_count

VMLINUZ = re.compile(
    r"^(?:(?:/usr)?/lib/modules/([^/\s]+)/vmlinuz|/boot/vmlinuz-(\S+))$", re.MULTILINE
)


def release_among(listed: str, kernel: str) -> str:
    """The release (`uname -r`) of the one kernel in a list of paths, a line each, of the package
    `kernel` and those that it brings.

    Raises InputError unless it is exactly one.
    """
    found = sorted({one or other for one, other in VMLINUZ.findall(listed)})
    if len(found) != 1:
        raise InputError(
            f"the package {kernel} installs {format_count(len(found), 'kernel')}"
            + (f": {', '.join(found)}" if found else ""),
            hint="set `kernel:` of the base to a package with exactly one kernel",
        )
    return str(found[0])
