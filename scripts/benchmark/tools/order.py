# SPDX-License-Identifier: Apache-2.0
"""From a recipe and its lock to what the other tools are told, and what their results are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.families.apt.repository import make_repository
from imagebuilder.lock.types import Lock, LockedPackage
from imagebuilder.lock.verified import Pool
from imagebuilder.plan import make_steps, packages_of
from imagebuilder.process import run
from imagebuilder.recipe.types import Recipe, TreeFile
from imagebuilder.steps.initrd import InitrdStep
from imagebuilder.steps.placed import is_boot_file, make_archive
from imagebuilder.store.workplace import remove_tree
from scripts.benchmark.tools.tool import MARK, PRIVATE, Made, Order, Outcome

# What Debian's kernel hooks of dracut look for: dracut runs once, at the end.
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
SLACK = 50  # an initrd may differ in size by this part of it: what else is in /etc tells


def make_order(
    recipe: Recipe, lock: Lock, more: Sequence[LockedPackage], debs: Path, folder: Path
) -> Order:
    """Make the archive and the files of the overlays in `folder`, which must not exist.

    `more` are packages that the archive has besides those of the lock, the first of them the one
    that will be added.
    """
    served = packages_of(recipe.base, (*lock.packages, *more), lock.epoch)
    make_repository(served, Pool(debs, debs.parent / "wheels"), folder / "repository")
    boot = [f for s in make_steps(recipe, lock) if isinstance(s, InitrdStep) for f in s.files]
    make_archive(boot, folder / "boot.tar")
    make_archive(list(placed_files(recipe)), folder / "files.tar")
    (folder / "files").mkdir()
    extract(folder / "files.tar", folder / "files")
    return Order(
        profile=recipe.profile,
        suite=recipe.base.suite,
        architecture=recipe.base.architecture,
        packages=tuple(package.name for package in lock.packages),
        added=more[0].name,
        path_excludes=recipe.base.path_excludes,
        repository=folder / "repository",
        boot_files=folder / "boot.tar",
        files=folder / "files",
        changing=changing_target(recipe),
        epoch=lock.epoch,
    )


def placed_files(recipe: Recipe) -> Iterator[TreeFile]:
    """Every file of the overlays; of two at one place the later."""
    yield from {file.target: file for o in recipe.overlays for file in o.files}.values()


def changing_target(recipe: Recipe) -> str:
    """A file of the last overlay that its root has and its initrd does not.  Raises WorkError."""
    overlay = recipe.overlays[-1]
    for target in sorted(f.target for f in overlay.files if not is_boot_file(f.target)):
        path = overlay.path / f"files{target}"
        if path.is_file() or path.with_name(f"{path.name}.j2").is_file():
            return target
    raise WorkError(f"overlay {overlay.name} places no file")


def extract(archive: Path, root: Path) -> None:
    """Unpack a tar file over a root, through its own links to folders."""
    run(["tar", "--extract", f"--file={archive}", f"--directory={root}",
         "--keep-directory-symlink", "--no-overwrite-dir"])  # fmt: skip


def lay_over(files: Path, root: Path) -> None:
    """Copy the files of the overlays over a root."""
    run(["cp", "--archive", "--no-target-directory", files, root])


def mark(path: Path) -> None:
    """Change a configuration file."""
    path.write_text(f"{path.read_text()}{MARK}\n")


def make_initrd(root: Path, order: Order, log: Path) -> None:
    """Run dracut in a root, as our step does."""
    run(
        [*PRIVATE, "sh", "-c", RUN_DRACUT, "sh", root, kernel_of(root)],
        env={"SOURCE_DATE_EPOCH": str(order.epoch)},
        log=log,
    )


def kernel_of(root: Path) -> str:
    """The release of the one kernel of a root.  Raises WorkError."""
    found = sorted(path.name for path in (root / "usr/lib/modules").iterdir())
    if len(found) != 1:
        raise WorkError(f"the root has {len(found)} kernels: {', '.join(found)}")
    return found[0]


def files_of(root: Path) -> Made:
    """The result that a root with its kernel and initrd in it is."""
    kernel = root / "boot" / f"vmlinuz-{kernel_of(root)}"
    if not kernel.exists():
        kernel = root / "usr/lib/modules" / kernel_of(root) / "vmlinuz"
    return Made(root, kernel, root / "boot/initrd.img")


def outcome_of(made: Made) -> Outcome:
    """What proves a result to be whole."""
    return Outcome(
        packages=len(installed(made.root)),
        vmlinuz=digest_of_file(made.vmlinuz),
        initrd_size=sum(path.stat().st_size for path in made.initrds),
    )


def installed(root: Path) -> frozenset[str]:
    """The packages that are installed in a root."""
    form = "${db:Status-Abbrev} ${Package}\\n"
    said = run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", f"--showformat={form}"])
    lines = [line.split() for line in said.stdout.splitlines()]
    return frozenset(line[-1] for line in lines if line[0] == "ii")


def check_same_work(ours: Outcome, other: Outcome, name: str) -> None:
    """Refuse a comparison of different things.  Raises WorkError."""
    wrong = [
        *([f"{other.packages} packages, not {ours.packages}"] * (other.packages != ours.packages)),
        *(["another kernel"] * (other.vmlinuz != ours.vmlinuz)),
        *(
            [f"an initrd of {other.initrd_size} bytes, not {ours.initrd_size}"]
            * (abs(other.initrd_size - ours.initrd_size) > ours.initrd_size / SLACK)
        ),
    ]
    if wrong:
        raise WorkError(f"{name} did not do the same work: {', '.join(wrong)}")


def check_changed(made: Made, order: Order, *, added: bool) -> None:
    """Refuse a result that does not have what was changed before it.  Raises WorkError."""
    path = made.root / order.changing.lstrip("/")
    if MARK not in path.read_text():
        raise WorkError(f"{order.changing} was changed, and the result has it as before")
    if added and order.added not in installed(made.root):
        raise WorkError(f"{order.added} was asked for, and the result does not have it")


def make_empty(folder: Path) -> None:
    """See to it that there is an empty folder, which apt's own user may read."""
    remove_tree(folder)
    folder.mkdir(parents=True, mode=0o755)
