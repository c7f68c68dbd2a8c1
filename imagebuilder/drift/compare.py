# SPDX-License-Identifier: Apache-2.0
"""Compare two boots by content, never by name."""

from __future__ import annotations

from collections.abc import Sequence

from imagebuilder.drift.types import SAME, BootContent, DriftPart, DriftState, NodeBoot
from imagebuilder.image.diff import versions
from imagebuilder.image.types import Image
from imagebuilder.nodes.config import NodeConfig
from imagebuilder.ui import format_count

MOST = 3  # packages that are named; `diff` names all


def compare_boots(old: NodeBoot, new: NodeBoot) -> dict[str, DriftPart]:
    return {
        "kernel": compare_kernels(old, new),
        "root": compare_roots(old, new),
        "cmdline": compare_words(old, new),
        "files": compare_files(old, new),
    }


def unknown(boot: NodeBoot) -> DriftPart:
    """The part of a boot whose release cannot be read."""
    return DriftPart(DriftState.UNKNOWN, (f"{boot.release} is no longer in this tree, or damaged",))


def changes(*why: str) -> DriftPart:
    return DriftPart(DriftState.CHANGES, why)


def compare_kernels(old: NodeBoot, new: NodeBoot) -> DriftPart:
    if old.release == new.release:
        return SAME
    for boot in (old, new):
        if boot.content is None:
            return unknown(boot)
    assert old.content
    assert new.content
    found = kernel_differences(old.content.image, new.content.image)
    return changes(*found) if found else SAME


def kernel_differences(old: Image, new: Image) -> list[str]:
    found: list[str] = []
    before, after = old.kernel, new.kernel
    if before.vmlinuz.sha256 != after.vmlinuz.sha256:
        both = before.release and after.release and before.release != after.release
        releases = f"kernel {before.release} -> {after.release}"
        found.append(releases if both else "a different vmlinuz")
    names = dict.fromkeys((*before.initrds, *after.initrds))
    return found + [
        f"a different {name}" for name in names if before.files.get(name) != after.files.get(name)
    ]


def compare_roots(old: NodeBoot, new: NodeBoot) -> DriftPart:
    if old.release == new.release:
        return SAME
    for boot in (old, new):
        if boot.content is None or not boot.content.root:
            return unknown(boot)
    assert old.content
    assert new.content
    found = root_differences(old.content, new.content)
    return changes(*found) if found else SAME


def root_differences(old: BootContent, new: BootContent) -> list[str]:
    """How two roots differ, in words: by their packages if these differ."""
    if old.root == new.root:
        return []
    before, after = versions(old.image), versions(new.image)
    names = sorted({*before, *after})
    pairs = [(name, before.get(name, "-"), after.get(name, "-")) for name in names]
    changed = [f"{name} {one} -> {other}" for name, one, other in pairs if one != other]
    if not changed:
        return ["root: the same packages, but different files"]
    more = f" and {len(changed) - MOST} more" if len(changed) > MOST else ""
    count = format_count(len(changed), "package")
    return [f"root: {count}: {', '.join(changed[:MOST])}{more}"]


def compare_words(old: NodeBoot, new: NodeBoot) -> DriftPart:
    """The kernel's command line, word by word and in order.

    It consists of the release's words, the kind of root and the node's words.  The words with the
    version's path and with the address for reports do not count.
    """
    if old.release != new.release:
        for boot in (old, new):
            if boot.content is None:
                return unknown(boot)
    found: list[str] = []
    if old.content and new.content:
        found += word_differences(old.content.image.boot.cmdline, new.content.image.boot.cmdline)
    if old.config is None or new.config is None:
        return changes(*found) if found else without_config(old, new)
    before, after = kind_of(old, old.config), kind_of(new, new.config)
    if before != after:
        found.append(f"root over {before} -> {after}")
    found += word_differences(old.config.words, new.config.words)
    return changes(*found) if found else SAME


def kind_of(boot: NodeBoot, config: NodeConfig) -> str:
    of_release = boot.content.image.boot.root if boot.content else "what its release declares"
    return config.root or of_release


def word_differences(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """How two sequences of words differ; empty if they are equal."""
    if tuple(old) == tuple(new):
        return []
    gone = [word for word in dict.fromkeys(old) if old.count(word) > new.count(word)]
    come = [word for word in dict.fromkeys(new) if new.count(word) > old.count(word)]
    found = [f"without {word}" for word in gone] + [f"with {word}" for word in come]
    return found or [f"in another order: {' '.join(new)}"]


def without_config(old: NodeBoot, new: NodeBoot) -> DriftPart:
    """The part that is unknown because the record of a boot is missing."""
    reasons = (boot.no_config for boot in (old, new) if not boot.config)
    return DriftPart(DriftState.UNKNOWN, tuple(dict.fromkeys(reasons)))


def compare_files(old: NodeBoot, new: NodeBoot) -> DriftPart:
    """The node's own files: by path, content, mode, owner."""
    if old.config is None or new.config is None:
        return without_config(old, new)
    before, after = old.config.files, new.config.files
    found = [
        f"{path} {how_changed(before.get(path), after.get(path))}"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]
    return changes(*found) if found else SAME


def how_changed(before: str | None, after: str | None) -> str:
    """How a file differs, from its lines in two records (nodes.config.describe_entry)."""
    if before is None or after is None:
        return "added" if before is None else "removed"
    old, new = before.split(" ", 2), after.split(" ", 2)
    if old[0][0] != new[0][0] or old[2:] != new[2:]:
        return "changed"
    return ", ".join(
        f"{what} {was} -> {now}"
        for what, was, now in (("mode", old[0][1:], new[0][1:]), ("owner", old[1], new[1]))
        if was != now
    )


def differences(old: BootContent, new: BootContent) -> tuple[str, ...]:
    """How two releases or images differ, in words; empty if they are equal."""
    found = [*kernel_differences(old.image, new.image), *root_differences(old, new)]
    before, after = old.image.boot, new.image.boot
    found += [f"command line {each}" for each in word_differences(before.cmdline, after.cmdline)]
    if before.root != after.root:
        found.append(f"root over {before.root} -> {after.root}")
    return tuple(found)
