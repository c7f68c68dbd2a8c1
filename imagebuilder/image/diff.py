# SPDX-License-Identifier: Apache-2.0
"""What differs between two images, told from what their manifests say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.image.types import Image
from imagebuilder.lock.changes import is_security
from imagebuilder.reasons import differences
from imagebuilder.ui import format_size, table


@dataclass(frozen=True)
class ImageDiff:
    """The differences; `packages` rows are name, old version, new version ("" is absent).

    `grown` is bytes more by package, `kind` how nodes get the root.
    """

    old: str
    new: str
    packages: tuple[tuple[str, str, str], ...]
    kernel: tuple[str, str]
    initrd_changed: bool
    cmdline: tuple[str, str]
    root_changed: bool
    size: tuple[int, int]
    inputs: tuple[str, ...]
    grown: Mapping[str, int]
    kind: tuple[str, str]

    @property
    def same(self) -> bool:
        """Whether the images would behave alike: same root, kernel, initrd and command line."""
        return not (self.root_changed or self.initrd_changed) and (
            self.kernel[0] == self.kernel[1]
            and self.cmdline[0] == self.cmdline[1]
            and self.kind[0] == self.kind[1]
        )


def diff_images(old: Image, new: Image) -> ImageDiff:
    before, after = versions(old), versions(new)
    packages = tuple(
        (name, before.get(name, ""), after.get(name, ""))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )
    sizes, sizes_after = installed_sizes(old), installed_sizes(new)
    layers = {r.title: r.inputs for r in old.layers}
    inputs = tuple(
        f"{record.title}: {change}"
        for record in new.layers
        for change in differences(layers.get(record.title, {}), record.inputs)
        if not record.title.startswith(("packages ", "base "))
    )
    return ImageDiff(
        old=old.name,
        new=new.name,
        packages=packages,
        kernel=(old.kernel.release, new.kernel.release),
        initrd_changed=old.kernel.initrds != new.kernel.initrds,
        cmdline=(old.cmdline, new.cmdline),
        root_changed=old.root.commit != new.root.commit,
        size=(old.root.size, new.root.size),
        inputs=inputs,
        grown={name: sizes_after.get(name, 0) - sizes.get(name, 0) for name, _, _ in packages},
        kind=(old.boot.root, new.boot.root),
    )


def from_security(image: Image) -> frozenset[str]:
    """The packages, as `package:architecture`, of sources that only have security updates."""
    suites: dict[str, list[str]] = {}
    for source in image.sources:
        suites.setdefault(source.id, []).append(source.suite)
    pockets = {name for name, found in suites.items() if all(map(is_security, found))}
    return frozenset(package.key for package in image.packages if package.source in pockets)


def versions(image: Image) -> dict[str, str]:
    return {package.key: package.version for package in image.packages}


def installed_sizes(image: Image) -> dict[str, int]:
    """Installed bytes by `package:architecture`, as the package manager has them."""
    return {package.key: package.installed for package in image.packages}


def diff_json(found: ImageDiff) -> dict[str, Json]:
    return {
        "old": found.old,
        "new": found.new,
        "same": found.same,
        "packages": [
            {"name": n, "old": a, "new": b, "grown": found.grown[n]} for n, a, b in found.packages
        ],
        "kernel": {"old": found.kernel[0], "new": found.kernel[1]},
        "initrd-changed": found.initrd_changed,
        "cmdline": {"old": found.cmdline[0], "new": found.cmdline[1]},
        "root-changed": found.root_changed,
        "root-kind": {"old": found.kind[0], "new": found.kind[1]},
        "root-size": {"old": found.size[0], "new": found.size[1]},
        "inputs": list(found.inputs),
    }


def render_diff(found: ImageDiff) -> str:
    if found.same:
        return f"{found.old} and {found.new} are the same: root, kernel, initrd, command line"
    lines = [f"{found.old} -> {found.new}"]
    if found.kernel[0] != found.kernel[1]:
        lines.append(f"kernel: {found.kernel[0]} -> {found.kernel[1]}")
    if found.initrd_changed:
        lines.append("initrd: changed")
    if found.cmdline[0] != found.cmdline[1]:
        lines.append(f"command line: {found.cmdline[0]}\n           -> {found.cmdline[1]}")
    if found.kind[0] != found.kind[1]:
        lines.append(f"root over: {found.kind[0]} -> {found.kind[1]}")
    before, after = found.size
    if before != after:
        lines.append(f"root: {format_size(before)} -> {format_size(after)}")
    if found.packages:
        rows = [
            (name, a or "-", b or "-", format_growth(found.grown[name]))
            for name, a, b in found.packages
        ]
        lines.append(table(rows, ("package", "old", "new", "size")))
    lines.extend(found.inputs)
    return "\n".join(lines)


def format_growth(size: int) -> str:
    """Bytes more or less for people."""
    if not size:
        return "-"
    return f"+{format_size(size)}" if size > 0 else f"-{format_size(-size)}"
