# SPDX-License-Identifier: Apache-2.0
"""What a cold build is measured against: one plain engine and one dracut.

The engine gets every package of the lock at once from a local archive that was made before, with
the options of its man page and no tuning: unlike in our steps, dpkg syncs.  mmdebstrap also leaves
out what the recipe leaves out, debootstrap has no option for it.  The hook with which the kernel's
package runs dracut is off: dracut runs once, at the end.  Nothing is committed, listed or verified,
and what the overlays configure is not applied, but for what dracut reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.lock.repository import make_repository
from imagebuilder.lock.types import Lock
from imagebuilder.plan import make_steps
from imagebuilder.process import Word, run
from imagebuilder.recipe.types import Recipe
from imagebuilder.steps.initrd import InitrdStep
from imagebuilder.steps.tarball import make_archive

# What Debian's kernel hooks of dracut look for.
NO_INITRD = {"INITRD": "No"}
# The words of steps/initrd.py.
DRACUT = "dracut --force --no-hostonly --reproducible --kver"
# In a namespace of its own: what is mounted here goes with it.
RUN_DRACUT = f"""\
set -eu
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
exec chroot "$1" {DRACUT} "$2" /boot/initrd.img
"""
PRIVATE: tuple[Word, ...] = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--")


@dataclass(frozen=True)
class Order:
    """What to make: all `packages` of the archive at `repository`, then an initrd."""

    suite: str
    architecture: str
    packages: tuple[str, ...]
    path_excludes: tuple[str, ...]
    repository: Path
    boot_files: Path
    epoch: int


@dataclass(frozen=True)
class Outcome:
    """What proves that both sides did the same work: packages installed, kernel and initrd."""

    packages: int
    vmlinuz: str
    initrd_size: int


def make_order(recipe: Recipe, lock: Lock, debs: Path, folder: Path) -> Order:
    """Make the archive and the tar file of what dracut reads in `folder`, which must not exist."""
    make_repository(
        lock.packages,
        debs,
        folder / "repository",
        suite=recipe.base.suite,
        architecture=recipe.base.architecture,
        epoch=lock.epoch,
    )
    files = [f for s in make_steps(recipe, lock) if isinstance(s, InitrdStep) for f in s.files]
    make_archive(files, folder / "boot.tar")
    return Order(
        suite=recipe.base.suite,
        architecture=recipe.base.architecture,
        packages=tuple(package.name for package in lock.packages),
        path_excludes=recipe.base.path_excludes,
        repository=folder / "repository",
        boot_files=folder / "boot.tar",
        epoch=lock.epoch,
    )


def run_plain(engine: str, order: Order, root: Path, log: Path) -> None:
    """Make a root and its initrd at `root`, which must not exist.  Raises WorkError."""
    ENGINES[engine](order, root, log)
    run(["tar", "--extract", f"--file={order.boot_files}", f"--directory={root}",
         "--keep-directory-symlink", "--no-overwrite-dir"])  # fmt: skip
    run(
        [*PRIVATE, "sh", "-c", RUN_DRACUT, "sh", root, kernel_of(root)],
        env={"SOURCE_DATE_EPOCH": str(order.epoch)},
        log=log,
    )


def run_mmdebstrap(order: Order, root: Path, log: Path) -> None:
    """One mmdebstrap: variant `essential` unpacks nothing twice."""
    excludes = [f"--dpkgopt=path-exclude={glob}" for glob in order.path_excludes]
    run(
        [
            *PRIVATE, "mmdebstrap", "--mode=root", "--format=directory", "--variant=essential",
            f"--architectures={order.architecture}", f"--include={','.join(order.packages)}",
            "--aptopt=Acquire::Languages none", *excludes,
            order.suite, root, f"deb [trusted=yes] copy:{order.repository} {order.suite} main",
        ],
        env=NO_INITRD,
        log=log,
    )  # fmt: skip


def run_debootstrap(order: Order, root: Path, log: Path) -> None:
    """One debootstrap, as its man page has it; it cannot leave files out while unpacking."""
    run(
        [
            *PRIVATE, "debootstrap", "--no-check-gpg", "--variant=minbase", "--merged-usr",
            f"--arch={order.architecture}", f"--include={','.join(order.packages)}",
            order.suite, root, f"file://{order.repository}",
            "/usr/share/debootstrap/scripts/sid",
        ],
        env=NO_INITRD,
        log=log,
    )  # fmt: skip


ENGINES: Mapping[str, Callable[[Order, Path, Path], None]] = {
    "mmdebstrap": run_mmdebstrap,
    "debootstrap": run_debootstrap,
}


def kernel_of(root: Path) -> str:
    """The release of the one kernel of a root.  Raises WorkError."""
    found = sorted(path.name for path in (root / "usr/lib/modules").iterdir())
    if len(found) != 1:
        raise WorkError(f"the root has {len(found)} kernels: {', '.join(found)}")
    return found[0]


def outcome_of(root: Path) -> Outcome:
    """What run_plain() made.  Raises WorkError when it is not whole."""
    form = "${db:Status-Abbrev}\\n"
    said = run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", f"--showformat={form}"])
    kernel = root / "boot" / f"vmlinuz-{kernel_of(root)}"
    if not kernel.exists():
        kernel = root / "usr/lib/modules" / kernel_of(root) / "vmlinuz"
    return Outcome(
        packages=said.stdout.split().count("ii"),
        vmlinuz=digest_of_file(kernel),
        initrd_size=(root / "boot/initrd.img").stat().st_size,
    )


def check_same_work(ours: Outcome, plain: Outcome, engine: str) -> None:
    """Refuse a comparison of different things.  Raises WorkError."""
    wrong = [
        *([f"{plain.packages} packages, not {ours.packages}"] * (plain.packages != ours.packages)),
        *(["another kernel"] * (plain.vmlinuz != ours.vmlinuz)),
        # What else is in /etc tells: a few kilobytes of 50 MB.
        *(
            [f"an initrd of {plain.initrd_size} bytes, not {ours.initrd_size}"]
            * (abs(plain.initrd_size - ours.initrd_size) > ours.initrd_size / 50)
        ),
    ]
    if wrong:
        raise WorkError(f"plain {engine} did not do the same work: {', '.join(wrong)}")
