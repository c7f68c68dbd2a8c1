# SPDX-License-Identifier: Apache-2.0
"""The view of an engine's sandbox for an ordinary user, who may make no layers.

Programs of the host and what is bound, all read-only; `work`, which can be written; no network; and
nothing else.  The root in it is the person in a user namespace (unshare(1) --map-root-user): what
is seen can be read with the person's rights.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from imagebuilder.process import Word, Wrapper
from imagebuilder.sandbox.init import (
    complain,
    import_nothing_more,
    install_filter,
    raise_loopback,
    read_table,
    run_to_end,
)
from imagebuilder.sandbox.mounts import (
    DEVICES,
    LINKS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REMOUNT,
    attach,
    check,
    clone,
    enter,
    libc,
    limits,
    mount,
    mount_view,
)
from imagebuilder.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from imagebuilder.sandbox.mounts import Table

START = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from imagebuilder.sandbox.view import start; start()"
)
PR_SET_NO_NEW_PRIVS = 38
REFUSED = 126
# Root in a namespace could make what is read-only writable: it has no capabilities.
POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")


@dataclass(frozen=True)
class View:
    """A wrapper for process.run(): what `sandbox` sees with `enter=False`, without its layers."""

    sandbox: Sandbox

    @property
    def environment(self) -> Mapping[str, str]:
        """The same fixed world."""
        return self.sandbox.environment

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The whole command: unshare, our first process with its table, then `argv`."""
        self.sandbox.make_directories()
        return [
            "unshare", "--user", "--map-root-user", "--mount", "--pid", "--ipc", "--uts", "--net",
            "--fork", "--kill-child", "--", sys.executable, "-I", "-S", "-c", START,
            Path(__file__).parents[2], self.sandbox.encode_table(), *argv,
        ]  # fmt: skip


def for_anybody(sandbox: Sandbox) -> Wrapper:
    """A sandbox with `enter=False` for root, and its view for an ordinary user."""
    return sandbox if os.geteuid() == 0 else View(sandbox)


def make_view(table: Table) -> None:
    """Mount what the table names and make it the root.  Raises OSError."""
    root = Path(table["work"], "view")
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for name in ("proc", "dev", "tmp", "run"):
        (root / name).mkdir()
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("tmpfs", root / "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for name in DEVICES:  # nobody but the host's root makes one
        attach(clone(f"/dev/{name}", user=None), f"/dev/{name}", root / "dev" / name)
    for name, target in LINKS.items():
        (root / "dev" / name).symlink_to(target)
    (root / "dev/shm").mkdir()
    mount("tmpfs", root / "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    mount_view(os.fspath(root), table["view"], resolver=False)
    work = table["work"]
    attach(clone(work, user=None, recursive=True), work, f"{root}{work}")
    for row in table["binds"]:
        copy = clone(row["source"], user=None, recursive=True, attributes=limits(row))
        attach(copy, row["source"], f"{root}{row['target']}")
    mount("", root, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    enter(os.fspath(root))


def start() -> NoReturn:
    import_nothing_more()
    table = read_table(sys.argv[1])
    try:
        make_view(table)
        raise_loopback()
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))), "prctl")
        install_filter(table["filter"])
    except OSError as error:
        complain(error)
        sys.exit(REFUSED)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.exit(run_to_end([*POWERLESS, *sys.argv[2:]]))
