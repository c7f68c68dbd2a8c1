# SPDX-License-Identifier: Apache-2.0
"""What nodes refer to, looked up in the tree: profiles, channels, versions, live systems."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from imagebuilder.errors import Fault
from imagebuilder.nodes.types import LIVE, LOCAL, Menu, Node
from imagebuilder.recipe.validate import quote, suggest
from imagebuilder.tree import CANDIDATE, CHANNELS, STABLE, ReleaseName, Tree

# What becomes a label of an iPXE script and part of a URL.
FIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")


@dataclass(frozen=True)
class Problem:
    """A key that names something the tree does not have, and what there is."""

    key: str
    what: str
    hint: str


def find_profiles(tree: Tree) -> tuple[str, ...]:
    """Profiles with a release, sorted."""
    return subfolders_of(tree, "releases", "*/*")


def find_versions(tree: Tree, profile: str) -> tuple[str, ...]:
    """Versions of a profile in the order in which they were published: the newest last."""
    folder = tree.http / "releases" / profile
    found = (p.name for p in folder.glob("*") if p.is_dir() and FIT.fullmatch(p.name))
    releases = (ReleaseName(profile, version) for version in found)
    return tuple(r.version for r in sorted(releases, key=lambda r: (tree.published(r), r)))


@dataclass(frozen=True)
class Target:
    """Where a channel leads: a version of its own profile, or what is wrong with it, or neither."""

    version: str = ""
    fault: Fault | None = None


def read_channel(tree: Tree, profile: str, channel: str) -> Target:
    """The one reading of a channel: a link to ../../http/releases/PROFILE/VERSION, nothing else."""
    link = tree.channel(profile, channel)
    move = (
        f"imagebuilder promote {profile}@VERSION, or rollback {profile} --to VERSION,"
        if channel == STABLE
        else f"imagebuilder publish {profile}"
    )
    try:
        target = link.readlink()
    except FileNotFoundError:
        return Target()
    except OSError:
        hint = f"move it away, then {move} makes the link"
        return Target(fault=Fault(os.fspath(link), "is not a link", hint))
    release = tree.release(ReleaseName(profile, target.name))
    if os.fspath(target) != f"../../http/releases/{profile}/{target.name}" or not release.is_dir():
        what = f"does not lead to a release of {profile}: it leads to {os.fspath(target)!r}"
        return Target(fault=Fault(os.fspath(link), what, f"{move} points it to a release"))
    return Target(target.name)


def find_version(tree: Tree, profile: str, channel: str) -> str:
    """The version a channel points to; empty when it points to nothing, or is damaged."""
    return read_channel(tree, profile, channel).version


def find_release(tree: Tree, node: Node) -> str:
    """The version that nodes.yaml wants on a node; empty when there is none."""
    if node.version:
        return node.version if node.version in find_versions(tree, node.profile) else ""
    return find_version(tree, node.profile, node.channel)


def find_channel_faults(tree: Tree, profile: str = "") -> list[Fault]:
    """What is wrong with the channels of a profile, or of all."""
    top = tree.path / "channels"
    profiles = [profile] if profile else sorted(p.name for p in top.glob("[!.]*"))
    pointers = (read_channel(tree, each, channel) for each in profiles for channel in CHANNELS)
    return [pointer.fault for pointer in pointers if pointer.fault]


def find_channel(tree: Tree, profile: str) -> str:
    """The channel that strangers get: stable, else candidate; empty when there is neither."""
    return next((c for c in (STABLE, CANDIDATE) if find_version(tree, profile, c)), "")


def find_offers(tree: Tree) -> tuple[tuple[str, str], ...]:
    """What strangers may choose from: profiles, each with the channel that they get."""
    offered = ((profile, find_channel(tree, profile)) for profile in find_profiles(tree))
    return tuple((profile, channel) for profile, channel in offered if channel)


def find_live(tree: Tree) -> tuple[str, ...]:
    """Names of the live systems, sorted."""
    return subfolders_of(tree, "live", "*/boot.ipxe")


def subfolders_of(tree: Tree, kind: str, pattern: str) -> tuple[str, ...]:
    """Folders of http/KIND that have something of `pattern`, sorted; unfinished ones excepted."""
    folder = tree.http / kind
    names = {path.relative_to(folder).parts[0] for path in folder.glob(pattern)}
    return tuple(sorted(name for name in names if FIT.fullmatch(name)))


def node_problem(tree: Tree, node: Node) -> Problem | None:
    """What a node wants and will not get, if anything."""
    profiles = find_profiles(tree)
    if node.profile not in profiles:
        hint = suggest(node.profile, profiles) or f"imagebuilder publish {node.profile}"
        return Problem("profile", f"no release of {quote(node.profile)} in this tree", hint)
    if node.version:
        versions = find_versions(tree, node.profile)
        if node.version not in versions:
            what = f"{node.profile} has no release {quote(node.version)} in this tree"
            return Problem("version", what, f"there are: {', '.join(versions)}")
    elif fault := read_channel(tree, node.profile, node.channel).fault:
        return Problem("channel", f"{fault.where} {fault.what}", fault.hint)
    elif not find_version(tree, node.profile, node.channel):
        there = [c for c in CHANNELS if find_version(tree, node.profile, c)]
        hint = f"imagebuilder promote {node.profile}"
        if there:
            hint += f"; there is: {', '.join(there)}"
        return Problem("channel", f"{node.profile} has no {node.channel} release", hint)
    if node.files and not (tree.path / node.files).is_dir():
        return Problem(
            "files", f"no folder {node.files} in {tree.path}", "make it, or leave it out"
        )
    return None


def menu_problem(tree: Tree, menu: Menu) -> Problem | None:
    """What the menu's default is and the tree lacks, if it does."""
    if menu.default == LOCAL:
        return None
    known = [LOCAL, *(f"{LIVE}{name}" for name in find_live(tree))]
    known += [profile for profile in find_profiles(tree) if find_channel(tree, profile)]
    if menu.default in known:
        return None
    what = f"{quote(menu.default)} is in no menu; the menu takes {quote(LOCAL)} until it is"
    return Problem("default", what, suggest(menu.default, known))
