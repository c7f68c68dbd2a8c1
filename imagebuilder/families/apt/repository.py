# SPDX-License-Identifier: Apache-2.0
"""A local archive of exactly the locked packages, for every engine and every package step.

target/pool/NAME_VERSION_ARCH.deb                   hard links to the pool
target/dists/SUITE/Release                          unsigned: each file was verified by the lock
target/dists/SUITE/main/binary-ARCH/Packages[.gz]
"""

from __future__ import annotations

import gzip
import hashlib
from email.utils import formatdate
from pathlib import Path

from imagebuilder.families.apt.deb import control
from imagebuilder.families.protocol import Packages
from imagebuilder.families.unpacked import link_or_copy
from imagebuilder.lock.types import LockedPackage
from imagebuilder.lock.verified import Pool

COMPONENT = "main"


def make_repository(served: Packages, pool: Pool, target: Path) -> None:
    """Make the archive at `target`, which must not exist yet or be empty.

    Raises what Pool.take() raises.
    """
    folder = target / "pool"
    folder.mkdir(parents=True)
    stanzas = []
    ordered = sorted(served.packages, key=lambda each: (each.name, each.version))
    for package, deb in zip(ordered, pool.take(ordered), strict=True):
        path = folder / file_name(package)
        link_or_copy(deb, path)
        record = control(pool.packages, package)
        stanzas.append(render_stanza(package, record, path.relative_to(target)))
    # debootstrap counts a record only when a blank line follows it.
    index = "".join(f"{stanza}\n" for stanza in stanzas).encode()
    folder = target / "dists" / served.suite
    names = f"{COMPONENT}/binary-{served.architecture}/Packages"
    files = {names: index, f"{names}.gz": gzip.compress(index, 1, mtime=0)}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    release = render_release(files, served)
    (folder / "Release").write_text(release)


def file_name(package: LockedPackage) -> str:
    """The name that apt gives to a package's file."""
    version = package.version.replace(":", "%3a")
    return f"{package.name}_{version}_{package.architecture}.deb"


def render_stanza(package: LockedPackage, control: str, path: Path) -> str:
    return f"{control.strip()}\nFilename: {path}\nSize: {package.size}\nSHA256: {package.sha256}\n"


def render_release(files: dict[str, bytes], served: Packages) -> str:
    """The Release file over `files`, by their names below its folder."""
    sums = "".join(
        f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}\n"
        for name, content in files.items()
    )
    return (
        "Origin: imagebuilder\n"
        "Label: imagebuilder\n"
        f"Suite: {served.suite}\n"
        f"Codename: {served.suite}\n"
        f"Date: {formatdate(served.epoch, usegmt=True)}\n"
        f"Architectures: {served.architecture}\n"
        f"Components: {COMPONENT}\n"
        f"SHA256:\n{sums}"
    )
