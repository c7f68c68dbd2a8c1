# SPDX-License-Identifier: Apache-2.0
"""Resolve what nodes refer to in the tree: profiles, channels, versions, live systems."""

from __future__ import annotations

import os
from dataclasses import dataclass

from imagebuilder.errors import Fault
from imagebuilder.folders import matching
from imagebuilder.nodes.types import LIVE, LOCAL, Menu, Node
from imagebuilder.phrases import quote, suggest
from imagebuilder.tree import CANDIDATE, CHANNELS, STABLE, ReleaseName, Tree, is_name


@dataclass(frozen=True)
class Problem:
    """A key that names something the tree does not have, with a hint."""

    key: str
    what: str
    hint: str


def find_profiles(tree: Tree) -> tuple[str, ...]:
    """Profiles with a release, sorted."""
    return subfolders_of(tree, "releases", "*/*")


def find_versions(tree: Tree, profile: str) -> tuple[str, ...]:
    """Versions of a profile in the order of publication, the newest last."""
    folder = tree.http / "releases" / profile
    found = (p.name for p in folder.glob("*") if p.is_dir() and is_name(p.name))
    releases = (ReleaseName(profile, version) for version in found)
    return tuple(r.version for r in sorted(releases, key=lambda r: (tree.published(r), r)))


def has_version(tree: Tree, profile: str, version: str) -> bool:
    """Whether it is one of find_versions(), without a look at the others."""
    return is_name(version) and tree.release(ReleaseName(profile, version)).is_dir()


@dataclass(frozen=True)
class Target:
    """Where a channel points: a version of its profile, or what is wrong with it, or neither."""

    version: str = ""
    fault: Fault | None = None


def read_channel(tree: Tree, profile: str, channel: str) -> Target:
    """Read a channel: only a link to ../../http/releases/PROFILE/VERSION is valid."""
    link = tree.channel(profile, channel)
    move = (
        f"run imagebuilder promote {profile}@VERSION, or rollback {profile} --to VERSION,"
        if channel == STABLE
        else f"run imagebuilder publish {profile}"
    )
    try:
        target = link.readlink()
    except FileNotFoundError:
        return Target()
    except OSError:
        hint = f"move it away, then {move} to make the link"
        return Target(fault=Fault(os.fspath(link), "is not a link", hint))
    release = tree.release(ReleaseName(profile, target.name))
    if os.fspath(target) != f"../../http/releases/{profile}/{target.name}" or not release.is_dir():
        what = f"does not point to a release of {profile}, but to {os.fspath(target)!r}"
        return Target(fault=Fault(os.fspath(link), what, f"{move} to point it to a release"))
    return Target(target.name)


def find_version(tree: Tree, profile: str, channel: str) -> str:
    """The version a channel points to; empty if it points to nothing, or is damaged."""
    return read_channel(tree, profile, channel).version


def find_release(tree: Tree, node: Node) -> str:
    """The version that nodes.yaml wants on a node; empty if it does not exist."""
    if node.version:
        return node.version if has_version(tree, node.profile, node.version) else ""
    return find_version(tree, node.profile, node.channel)


def find_channel_faults(tree: Tree, profile: str = "") -> list[Fault]:
    """What is wrong with the channels of a profile, or of all."""
    top = tree.path / "channels"
    profiles = [profile] if profile else sorted(p.name for p in top.glob("[!.]*"))
    pointers = (read_channel(tree, each, channel) for each in profiles for channel in CHANNELS)
    return [pointer.fault for pointer in pointers if pointer.fault]


def find_channel(tree: Tree, profile: str) -> str:
    """The channel for unknown machines: stable, or else candidate; empty without either."""
    return next((c for c in (STABLE, CANDIDATE) if find_version(tree, profile, c)), "")


def find_offers(tree: Tree) -> tuple[tuple[str, str], ...]:
    """What unknown machines may choose from: profiles with their channels."""
    offered = ((profile, find_channel(tree, profile)) for profile in find_profiles(tree))
    return tuple((profile, channel) for profile, channel in offered if channel)


def find_live(tree: Tree) -> tuple[str, ...]:
    """Names of the live systems, sorted."""
    return subfolders_of(tree, "live", "*/boot.ipxe")


def subfolders_of(tree: Tree, kind: str, pattern: str) -> tuple[str, ...]:
    """The complete folders of http/KIND with something that matches `pattern`, sorted."""
    folder = tree.http / kind
    names = {path.relative_to(folder).parts[0] for path in matching(folder, pattern)}
    return tuple(sorted(name for name in names if is_name(name)))


def node_problem(tree: Tree, node: Node) -> Problem | None:
    """What a node wants but the tree does not have, if anything."""
    profiles = find_profiles(tree)
    if node.profile not in profiles:
        hint = suggest(node.profile, profiles) or f"run imagebuilder publish {node.profile}"
        return Problem("profile", f"this tree has no release of {quote(node.profile)}", hint)
    if node.version:
        if not has_version(tree, node.profile, node.version):
            what = f"{node.profile} has no release {quote(node.version)} in this tree"
            known = ", ".join(find_versions(tree, node.profile))
            return Problem("version", what, f"available: {known}")
    elif fault := read_channel(tree, node.profile, node.channel).fault:
        return Problem("channel", f"{fault.where} {fault.what}", fault.hint)
    elif not find_version(tree, node.profile, node.channel):
        there = [c for c in CHANNELS if find_version(tree, node.profile, c)]
        verb = "promote" if node.channel == STABLE else "publish"
        hint = f"run imagebuilder {verb} {node.profile}"
        if there:
            hint += f", or use channel {' or '.join(there)}"
        return Problem("channel", f"{node.profile} has no {node.channel} release", hint)
    if node.files and not (tree.path / node.files).is_dir():
        return Problem(
            "files", f"{tree.path} has no folder {node.files}", "make it, or remove the key"
        )
    return None


def menu_problem(tree: Tree, menu: Menu) -> Problem | None:
    """The problem of the menu's default, if it does not exist."""
    if menu.default == LOCAL:
        return None
    known = [LOCAL, *(f"{LIVE}{name}" for name in find_live(tree))]
    known += [profile for profile in find_profiles(tree) if find_channel(tree, profile)]
    if menu.default in known:
        return None
    what = f"{quote(menu.default)} is not available; until it is, the menu uses {quote(LOCAL)}"
    return Problem("default", what, suggest(menu.default, known))
