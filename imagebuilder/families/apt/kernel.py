# SPDX-License-Identifier: Apache-2.0
"""Which kernel a package brings, and which packages a kernel came in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from imagebuilder.errors import InputError
from imagebuilder.workspace import Workspace

# Where Debian's kernel packages have it: up to trixie, and since Linux 7 in forky.
VMLINUZ = re.compile(r"^(?:/boot/vmlinuz-(\S+)|/usr/lib/modules/([^/\s]+)/vmlinuz)$", re.MULTILINE)
# The packages of Debian and Ubuntu with what is built together with a kernel.
OF_KERNEL = re.compile(r"linux-(?:image|modules)(?:-unsigned|-extra)?-(.+)")


def find_kernel_release(workspace: Workspace, kernel: str) -> str:
    """The release (`uname -r`) of the one kernel that the package `kernel` brings.

    Follows the package's own metadata: a metapackage depends, over one or more others, on the
    package that ships the kernel itself.  Never by file order (kairos #2522, warewulf #2199).
    Raises InputError.
    """
    form = "${Package} ${Depends}\\n"
    said = workspace.ask(["dpkg-query", "--show", f"--showformat={form}", "linux-*"]).stdout
    depends = {words[0]: words[1:] for words in map(str.split, said.splitlines())}
    listed = workspace.ask(["dpkg", "-L", *brought_by(kernel, depends)], check=False).stdout
    found = sorted({one or other for one, other in VMLINUZ.findall(listed)})
    if len(found) != 1:
        raise InputError(
            f"the package {kernel} brings {len(found)} kernels: {', '.join(found) or 'none'}",
            hint="name one kernel package under `kernel:` of the base",
        )
    return str(found[0])


def brought_by(package: str, depends: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """`package` and those it depends on, over any number of others, as far as `depends` knows."""
    wanted, seen = [package], {package: None}
    while wanted:
        new = [name for name in depends.get(wanted.pop(), ()) if name in depends]
        wanted.extend(name for name in new if name not in seen)
        seen.update(dict.fromkeys(new))
    return tuple(seen)


def is_kernel_package(package: str, release: str) -> bool:
    """As Family.is_kernel_package()."""
    match = OF_KERNEL.fullmatch(package)
    return match is not None and match[1] == release
