# SPDX-License-Identifier: Apache-2.0
"""Two boots -> what of the first the second would change.  By content: names never count."""

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
    told = kernel_differences(old.content.image, new.content.image)
    return changes(*told) if told else SAME


def kernel_differences(old: Image, new: Image) -> list[str]:
    found: list[str] = []
    before, after = old.kernel, new.kernel
    if before.vmlinuz.sha256 != after.vmlinuz.sha256:
        both = before.release and after.release and before.release != after.release
        told = f"kernel {before.release} -> {after.release}"
        found.append(told if both else "another vmlinuz")
    if before.initrd.sha256 != after.initrd.sha256:
        found.append("another initrd.img")
    return found


def compare_roots(old: NodeBoot, new: NodeBoot) -> DriftPart:
    if old.release == new.release:
        return SAME
    for boot in (old, new):
        if boot.content is None or not boot.content.root:
            return unknown(boot)
    assert old.content
    assert new.content
    told = root_differences(old.content, new.content)
    return changes(*told) if told else SAME


def root_differences(old: BootContent, new: BootContent) -> list[str]:
    """How two roots differ, in words: by their packages as far as those do."""
    if old.root == new.root:
        return []
    before, after = versions(old.image), versions(new.image)
    names = sorted({*before, *after})
    pairs = [(name, before.get(name, "-"), after.get(name, "-")) for name in names]
    told = [f"{name} {one} -> {other}" for name, one, other in pairs if one != other]
    if not told:
        return ["root: the same packages, other files"]
    more = f" and {len(told) - MOST} more" if len(told) > MOST else ""
    count = format_count(len(told), "package")
    return [f"root: {count}: {', '.join(told[:MOST])}{more}"]


def compare_words(old: NodeBoot, new: NodeBoot) -> DriftPart:
    """The kernel's command line, word by word and in order.

    It is the release's words, the way to the root, the node's words: all three must be the same.
    The word with the version's path is not among them, nor the one with the address for reports.
    """
    if old.release != new.release:
        for boot in (old, new):
            if boot.content is None:
                return unknown(boot)
    told: list[str] = []
    if old.content and new.content:
        told += word_differences(old.content.image.boot.cmdline, new.content.image.boot.cmdline)
    if old.given is None or new.given is None:
        return changes(*told) if told else ungiven(old, new)
    before, after = kind_of(old, old.given), kind_of(new, new.given)
    if before != after:
        told.append(f"root over {before} -> {after}")
    told += word_differences(old.given.words, new.given.words)
    return changes(*told) if told else SAME


def kind_of(boot: NodeBoot, given: NodeConfig) -> str:
    return given.root or (boot.content.image.boot.root if boot.content else "what its release says")


def word_differences(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """How two sequences of words differ; empty when they are equal."""
    if tuple(old) == tuple(new):
        return []
    gone = [word for word in dict.fromkeys(old) if old.count(word) > new.count(word)]
    come = [word for word in dict.fromkeys(new) if new.count(word) > old.count(word)]
    told = [f"without {word}" for word in gone] + [f"with {word}" for word in come]
    return told or [f"in another order: {' '.join(new)}"]


def ungiven(old: NodeBoot, new: NodeBoot) -> DriftPart:
    """The part that is unknown because a record is missing."""
    return DriftPart(
        DriftState.UNKNOWN, tuple(dict.fromkeys(b.ungiven for b in (old, new) if not b.given))
    )


def compare_files(old: NodeBoot, new: NodeBoot) -> DriftPart:
    """The node's own files: by path, content, mode, owner."""
    if old.given is None or new.given is None:
        return ungiven(old, new)
    before, after = old.given.files, new.given.files
    told = [
        f"{path} {how_changed(before.get(path), after.get(path))}"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]
    return changes(*told) if told else SAME


def how_changed(before: str | None, after: str | None) -> str:
    """How a file differs, from its lines in two records (given.describe_entry)."""
    if before is None or after is None:
        return "added" if before is None else "removed"
    old, new = before.split(" ", 2), after.split(" ", 2)
    if old[0][0] != new[0][0] or old[2:] != new[2:]:
        return "changed"
    told = [
        f"{what} {was} -> {now}"
        for what, was, now in (("mode", old[0][1:], new[0][1:]), ("owner", old[1], new[1]))
        if was != now
    ]
    return ", ".join(told)


def differences(old: BootContent, new: BootContent) -> tuple[str, ...]:
    """In what two releases or images differ, in words; nothing when they are the same."""
    told = [*kernel_differences(old.image, new.image), *root_differences(old, new)]
    before, after = old.image.boot, new.image.boot
    told += [f"command line {each}" for each in word_differences(before.cmdline, after.cmdline)]
    if before.root != after.root:
        told.append(f"root over {before.root} -> {after.root}")
    return tuple(told)
