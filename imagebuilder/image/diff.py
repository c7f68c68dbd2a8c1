# SPDX-License-Identifier: Apache-2.0
"""What differs between two images, told from their manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.image.manifest import layer_records
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


def diff_manifests(old: Mapping[str, Json], new: Mapping[str, Json]) -> ImageDiff:
    """Compare two manifests."""
    before, after = versions(old), versions(new)
    packages = tuple(
        (name, before.get(name, ""), after.get(name, ""))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )
    sizes, sizes_after = installed_sizes(old), installed_sizes(new)
    layers = {r.title: r.inputs for r in layer_records(old)}
    inputs = tuple(
        f"{record.title}: {change}"
        for record in layer_records(new)
        for change in differences(layers.get(record.title, {}), record.inputs)
        if not record.title.startswith(("packages ", "base "))
    )
    return ImageDiff(
        old=f"{old['profile']}@{old['version']}",
        new=f"{new['profile']}@{new['version']}",
        packages=packages,
        kernel=(text(old, "kernel", "release"), text(new, "kernel", "release")),
        initrd_changed=part(old, "kernel", "initrd") != part(new, "kernel", "initrd"),
        cmdline=(words(old), words(new)),
        root_changed=text(old, "root", "commit") != text(new, "root", "commit"),
        size=(number(old, "root", "size"), number(new, "root", "size")),
        inputs=inputs,
        grown={name: sizes_after.get(name, 0) - sizes.get(name, 0) for name, _, _ in packages},
        kind=(root_kind(old), root_kind(new)),
    )


def part(manifest: Mapping[str, Json], *path: str) -> Json:
    """The value at `path` of a manifest."""
    value: Json = manifest
    for key in path:
        assert isinstance(value, Mapping)
        value = value[key]
    return value


def text(manifest: Mapping[str, Json], *path: str) -> str:
    """The string at `path`."""
    return str(part(manifest, *path))


def number(manifest: Mapping[str, Json], *path: str) -> int:
    """The integer at `path`."""
    value = part(manifest, *path)
    assert isinstance(value, int)
    return value


def words(manifest: Mapping[str, Json]) -> str:
    """The command line."""
    value = part(manifest, "boot", "cmdline")
    assert isinstance(value, Sequence)
    return " ".join(map(str, value))


def versions(manifest: Mapping[str, Json]) -> dict[str, str]:
    """Version by `package:architecture`."""
    listed = manifest["packages"]
    assert isinstance(listed, list)
    return {f"{p['name']}:{p['architecture']}": p["version"] for p in listed}


def root_kind(manifest: Mapping[str, Json]) -> str:
    """How nodes get the root unless they say otherwise."""
    boot = part(manifest, "boot")
    return str(boot.get("root", "nfs")) if isinstance(boot, Mapping) else ""


def installed_sizes(manifest: Mapping[str, Json]) -> dict[str, int]:
    """Installed bytes by `package:architecture`, as dpkg has them."""
    listed = manifest["packages"]
    assert isinstance(listed, list)
    return {f"{p['name']}:{p['architecture']}": p.get("installed-size", 0) for p in listed}


def diff_json(found: ImageDiff) -> dict[str, Json]:
    """The differences for programs."""
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
    """The differences for people."""
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
