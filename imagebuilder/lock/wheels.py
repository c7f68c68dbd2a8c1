# SPDX-License-Identifier: Apache-2.0
"""Python wheels: chosen and fetched by pip, with the host's own index configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from imagebuilder.answers import find_headers
from imagebuilder.decode import read_object
from imagebuilder.digest import Json, digest_of_file
from imagebuilder.errors import HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.files import scratch
from imagebuilder.lock.continued import LOG, continue_wheels, forget, pip_folder
from imagebuilder.lock.patience import Pace, SlowError, paced
from imagebuilder.lock.pip import (
    MOST_CHOSEN,
    NETWORK_HINT,
    UNREACHABLE,
    Pip,
    choosing,
    download_error,
    errors_of,
    find_known,
    first_done,
    run_pip,
)
from imagebuilder.lock.pool import wheel_path
from imagebuilder.lock.types import LockedPython, LockedWheel
from imagebuilder.process import Completed
from imagebuilder.recipe.requirements import Requirement, load_requirements
from imagebuilder.recipe.types import PythonEnv
from imagebuilder.ui import format_count

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # as uname(2) has them
# The first glibc of manylinux (PEP 600), and the older names (PEP 513, 571, 599).
FIRST_GLIBC = 5
OLD_NAMES = {"amd64": ("manylinux1", "manylinux2010", "manylinux2014"), "arm64": ("manylinux2014",)}
NO_WHEEL = re.compile(r"No matching distribution found for (\S+)")
# Of a size that a file can have; a server may say anything.
LENGTH = re.compile(r"[0-9]{1,15}")
TIMEOUT_S = 30
# Versions to try for a hint if there is no wheel for the root's.
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True)
class Python:
    """The Python of a root: `version` is `3.13.5`, `glibc` the minor number of its C library."""

    version: str
    glibc: int
    architecture: str

    @property
    def short(self) -> str:
        """Major and minor: `3.13`."""
        return ".".join(self.version.split(".")[:2])

    @property
    def machine(self) -> str:
        return MACHINES[self.architecture]

    @property
    def options(self) -> list[str]:
        """The options that make pip choose wheels for this Python instead of its own."""
        names = [f"manylinux_2_{minor}" for minor in range(self.glibc, FIRST_GLIBC - 1, -1)]
        names += [*OLD_NAMES[self.architecture], "linux"]
        platforms = [word for name in names for word in ("--platform", f"{name}_{self.machine}")]
        return [
            "--only-binary", ":all:", "--no-deps", "--implementation", "cp",
            "--python-version", self.short, *platforms,
        ]  # fmt: skip

    @property
    def markers(self) -> dict[str, str]:
        """The environment markers (PEP 508) of this Python; pip would use those of its own."""
        return {
            "implementation_name": "cpython",
            "implementation_version": self.version,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": self.version,
            "python_version": self.short,
            "sys_platform": "linux",
        }


def python_of(version: str, glibc: str, architecture: str, env: PythonEnv) -> Python:
    """The Python of a root whose packages contain `env`'s interpreter in `version`.

    `glibc` is the version of its C library.  Raises InputError if either is "".
    """
    name = Path(env.interpreter).name
    if not version:
        raise InputError(
            f"no package contains {env.interpreter}",
            where=f"python environment {env.path}",
            hint=f"add {name} to the packages of its overlay or an earlier one",
        )
    number = re.match(r"3\.\d+(\.\d+)?", version)
    if not number:
        raise WorkError(f"{name} {version} is not a Python 3")
    return Python(number[0], glibc_of(glibc), architecture)


def glibc_of(version: str) -> int:
    """The minor version of a C library.  Raises InputError for "" (not the GNU C library)."""
    number = re.match(r"2\.(\d+)", version)
    if not number:
        raise InputError("wheels need a root with the GNU C library", hint="choose another base")
    return int(number[1])


def lock_python(
    env: PythonEnv,
    python: Python,
    cache: Path,
    progress: Callable[[str], None],
    pool: Path | None = None,
) -> LockedPython:
    """Choose the wheels of one environment; those in `pool` have the size that they have there.

    Raises InputError for requirements that are not exact and hashed, or that have no wheel for
    this Python; HostError if no index is reachable.
    """
    wanted = load_requirements(env.requirements, python.markers)
    if digest_of_file(env.requirements) != env.digest:  # else the lock would name another file
        where = os.fspath(env.requirements)
        raise InputError(
            "has changed since the recipe was read", where=where, hint="run the command again"
        )
    count = format_count(len(wanted.entries), "wheel")
    progress(f"Choosing {count} for {env.path} (Python {python.short})")
    cache.mkdir(parents=True, exist_ok=True)
    with scratch(cache, "wheels-") as work:
        items = report_of(work, wanted.options, wanted.entries, python, env)
        by_name = {entry.name: entry for entry in wanted.entries}
        wheels = [locked_wheel(item, by_name, env, work, python) for item in items]
        wheels = [with_size_in(pool, wheel) for wheel in wheels] if pool else wheels
    return LockedPython(
        path=env.path,
        requirements=env.digest,
        python=python.short,
        wheels=tuple(sorted(wheels, key=lambda wheel: wheel.name)),
        interpreter=env.interpreter,
        options=wanted.options,
    )


@dataclass(frozen=True)
class Item:
    """One wheel of pip's installation report."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def filename(self) -> str:
        return unquote(Path(urlsplit(self.url).path).name)

    @property
    def local(self) -> Path | None:
        """The file, if the wheel is on this host."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None


def report_of(
    scratch: Path,
    options: Sequence[str],
    entries: Sequence[Requirement],
    python: Python,
    env: PythonEnv,
) -> list[Item]:
    """What pip would install.

    With hashes pip downloads every wheel before it answers; without, it reads only the metadata.
    So it runs without hashes first, and with them only if it chose a different file.
    """
    if not entries:
        return []
    items = list(ask_pip(scratch, options, entries, python, env, hashed=False))
    allowed = {entry.name: entry.hashes for entry in entries}
    if all(item.sha256 in allowed.get(item.name, ()) for item in items):
        return items
    return list(ask_pip(scratch, options, entries, python, env, hashed=True))


def ask_pip(
    scratch: Path,
    options: Sequence[str],
    entries: Sequence[Requirement],
    python: Python,
    env: PythonEnv,
    *,
    hashed: bool,
) -> Iterator[Item]:
    """Run pip without installing anything and read its report."""
    requirements, report = scratch / "requirements.txt", scratch / "report.json"
    lines = [entry.hashed.rstrip() if hashed else entry.pinned for entry in entries]
    where = f"python environment {env.path}"
    with choosing(scratch, where) as pip:
        done = first_done(
            requirements, options, lines,
            lambda: pip(
                "install", "--dry-run", "--ignore-installed", *python.options,
                *(("--require-hashes",) if hashed else ()),
                "--target", scratch / "target", "--report", report, "--requirement", requirements,
            ),
        )  # fmt: skip
        if done.status != 0:
            is_lost = UNREACHABLE.search(done.stdout + done.stderr)
            match = None if is_lost else NO_WHEEL.search(done.stderr)
            others = pythons_with(match[1], scratch, options, python, pip) if match else []
            raise pip_error(done, where, python, others)
    for entry in cast(list[dict[str, Json]], read_object(report, whole=True)["install"]):
        yield read_item(entry)


def pythons_with(
    wanted: str, scratch: Path, options: Sequence[str], python: Python, pip: Pip
) -> list[str]:
    """The Pythons (`3.11`), of those in use, for which the indexes have a wheel of `wanted`."""
    requirements = scratch / "one.txt"
    requirements.write_text("".join(f"{line}\n" for line in (*options, wanted)))
    others = (replace(python, version=version) for version in PYTHONS if version != python.short)
    return [
        other.short
        for other in others
        if pip(
            "install", "--dry-run", "--quiet", "--ignore-installed", *other.options,
            "--target", scratch / "target", "--requirement", requirements,
        ).status == 0
    ]  # fmt: skip


def read_item(entry: Mapping[str, Json]) -> Item:
    """An entry of pip's installation report (version 1)."""
    download = cast(Mapping[str, Json], entry["download_info"])
    metadata = cast(Mapping[str, str], entry["metadata"])
    archive = cast(Mapping[str, Json], download.get("archive_info") or {})
    hashes = cast(Mapping[str, str], archive.get("hashes") or {})
    name = re.sub(r"[-_.]+", "-", metadata["name"]).lower()
    item = Item(name, metadata["version"], cast(str, download["url"]), hashes.get("sha256", ""))
    if not item.sha256 and item.local:
        return Item(name, item.version, item.url, digest_of_file(item.local))
    return item


def locked_wheel(
    item: Item,
    wanted: Mapping[str, Requirement],
    env: PythonEnv,
    scratch: Path,
    python: Python,
) -> LockedWheel:
    where = f"python environment {env.path}"
    try:
        parse_wheel_filename(item.filename)
    except InvalidWheelFilename as error:
        raise WorkError(f"{item.filename} is not the name of a wheel", where=where) from error
    if item.sha256 not in wanted[item.name].hashes:
        raise InputError(
            f"{item.filename} has sha256 {item.sha256 or 'unknown'}, which is not in the "
            "requirements",
            where=where,
            hint="recreate the requirements: pip-compile --generate-hashes",
        )
    size = find_size(item) or fetched_size(item, scratch, python, where)
    return LockedWheel(item.name, item.version, item.filename, item.sha256, size)


def with_size_in(pool: Path, wheel: LockedWheel) -> LockedWheel:
    """The wheel with the size of the verified file in the pool, if it is there."""
    with suppress(OSError):  # the pool may be root's
        return replace(wheel, size=wheel_path(pool, wheel).stat().st_size)
    return wheel


def find_size(item: Item) -> int | None:
    """The size of a wheel without fetching it: that of the file, or as its server reports it.

    Nothing proves what a server reports until the wheel is fetched (pool.keep_wheel()).
    """
    if item.local:
        return item.local.stat().st_size
    try:
        answer = find_headers(item.url, TIMEOUT_S, verify=os.environ.get("PIP_CERT") or True)
    except (OSError, ValueError):  # a RequestException is an OSError
        return None
    length = LENGTH.fullmatch(answer.headers.get("Content-Length", ""))
    known = answer.ok and length and "Content-Encoding" not in answer.headers
    return int(length[0]) or None if length and known else None


def fetched_size(item: Item, scratch: Path, python: Python, where: str) -> int:
    """The size of a wheel whose server does not report it."""
    wheel = LockedWheel(item.name, item.version, item.filename, item.sha256, 0)
    with paced(scratch, total=MOST_CHOSEN) as pace:
        download(scratch / "fetched", (), [wheel], python, where, pace)
    return (scratch / "fetched" / item.filename).stat().st_size


def download(
    folder: Path,
    options: Sequence[str],
    wheels: Sequence[LockedWheel],
    python: Python,
    where: str,
    pace: Pace,
) -> None:
    """Fetch `wheels` into `folder`, resuming partial files; pip verifies their hashes.

    Raises WorkError if an index has a different file than the lock, HostError if no index is
    reachable or the download is too slow.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with pip_folder(folder) as work:
        requirements = work / "requirements.txt"
        try:
            missing = continue_wheels(folder, wheels, pace)
            if not missing:
                return
            lines = [f"{each.name}=={each.version} --hash=sha256:{each.sha256}" for each in missing]
            done = first_done(
                requirements, options, lines,
                lambda: run_pip(
                    "download", "--require-hashes", *python.options, "--log", work / LOG,
                    "--dest", folder, "--requirement", requirements,
                    env={"TMPDIR": os.fspath(work)}, ask=pace.ask,
                ),
            )  # fmt: skip
        except SlowError as error:
            raise HostError(
                f"the package index sent {pace.patience}: gave up on "
                f"{format_count(len(wheels), 'wheel')}, such as {wheels[-1].filename}",
                where=where,
                hint=f"run the command again (complete files were kept), or {NETWORK_HINT}",
            ) from error
    if done.status != 0:
        raise download_error(done, where)
    for wheel in missing:
        forget(folder, wheel)


def pip_error(
    done: Completed, where: str, python: Python, others: Sequence[str] = ()
) -> ImagebuilderError:
    """Why pip could not choose; `others` are Pythons for which the missing wheel exists."""
    if known := find_known(done, where):
        return known
    words = errors_of(done)
    if match := NO_WHEEL.search(done.stderr):
        return InputError(
            f"no wheel of {match[1]} for Python {python.short} on {python.machine} with glibc "
            f"2.{python.glibc}\n    {words}",
            where=where,
            hint=(
                f"there is one for Python {', '.join(others)}: requirements are made for one "
                f"Python; recreate them with --python-version {python.short}, or choose a base "
                "with that Python"
                if others
                else "choose a version that has one, or a base with another Python"
            )
            + (" (or no index answered)" if "versions: none" in done.stderr else ""),
        )
    if "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr:
        return InputError(
            f"an index has a different file than the requirements\n    {words}",
            where=where,
            hint="recreate the requirements: pip-compile --generate-hashes",
        )
    return InputError(f"pip could not choose wheels\n    {words}", where=where)
