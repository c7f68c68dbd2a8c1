# SPDX-License-Identifier: Apache-2.0
"""Settings of container engines."""

from __future__ import annotations

import codecs
import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from imagebuilder.decode import parse_json
from imagebuilder.errors import InputError
from imagebuilder.proof.reading.documents import SettingsFile, read_settings
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

DAEMON = "/etc/docker/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
# Packages with dockerd, by distribution.
DOCKERS = ("docker-ce", "docker.io", "moby-engine")
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
MARKS_SINCE = 23  # of dockerd, which refused a mark and a blank file before
MAJOR = re.compile(r"(?:\d+:)?(\d+)\.")
OLD_NAMES = frozenset(("io.containerd.grpc.v1.cri", "cri"))
# Where containerd has the settings of its containers for a kubelet, of every version.
CRI_NAMES = (*sorted(OLD_NAMES), "io.containerd.cri.v1.runtime")
CRI_IMAGES = "io.containerd.cri.v1.images"
CRIO = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*")
CNI, CNI_ENDINGS = "/etc/cni/net.d", (".conf", ".conflist", ".json")


@dataclass(frozen=True)
class CniNetwork:
    """A network of the Container Network Interface: its file, its first plugin, and the ranges that
    host-local takes addresses from, without those that something fills in on a node.
    """

    path: str
    plugin: str
    ranges: tuple[str, ...]


def read_networks(root: Root, folder: str) -> Iterator[CniNetwork]:
    """The networks of a folder in the order of their names, as libcni lists them (ConfFiles())."""
    for name in sorted(root.names(folder)):
        path = f"{folder}/{name}"
        if not name.endswith(CNI_ENDINGS):
            continue
        try:
            read = parse_json(root.text(path) or "{}", path)
        except InputError:
            continue
        plugins = read.get("plugins", [read]) if isinstance(read, dict) else []
        first = plugins[0] if isinstance(plugins, list) and plugins else None
        if isinstance(first, dict) and isinstance(first.get("type"), str):
            yield CniNetwork(path, first["type"], tuple(ranges_of(first.get("ipam"))))


def ranges_of(ipam: object) -> Iterator[str]:
    """The ranges of host-local (cni.dev, "host-local IP address management plugin")."""
    if not isinstance(ipam, dict) or ipam.get("type") != "host-local":
        return
    sets = ipam.get("ranges")
    listed = (
        [one for each in sets if isinstance(each, list) for one in each]
        if isinstance(sets, list)
        else []
    )
    for one in (ipam, *listed):
        subnet = one.get("subnet") if isinstance(one, dict) else None
        try:
            yield str(ipaddress.ip_network(str(subnet), strict=False))
        except ValueError:  # a word such as usePodCidr
            continue


def value_at(settings: object, *keys: str) -> object:
    """The value below some tables, None if one is not there."""
    for key in keys:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def has_no_cri(settings: Mapping[str, Any]) -> bool:
    """Whether containerd is told to leave out what the kubelet asks."""
    disabled = settings.get("disabled_plugins")
    named = set(map(str, disabled)) if isinstance(disabled, list) else set()
    return bool(OLD_NAMES & named)


def read_daemon(subject: Subject) -> SettingsFile:
    """The settings of dockerd, as getConflictFreeConfiguration() of moby's daemon/config reads
    them: text in UTF-8, or with the mark of UTF-8 or UTF-16; a blank file has none.
    """
    content = subject.root.read(DAEMON)
    if content is None:
        return SettingsFile(DAEMON)
    mark = next((mark for mark in MARKS if content.startswith(mark)), b"")
    try:
        # A decoder of Go replaces halves of pairs; outside of strings they are no JSON.
        errors = "strict" if MARKS.get(mark, "utf-8") == "utf-8" else "replace"
        text = content[len(mark) :].decode(MARKS.get(mark, "utf-8"), errors).strip()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, len(mark) + error.start) + 1
        return SettingsFile(DAEMON, problem="is not UTF-8 text", where=f"{DAEMON}:{line}")
    if (mark or not text) and is_old(subject):
        problem = "begins with a byte order mark" if mark else "is empty"
        return SettingsFile(DAEMON, problem=f"{problem}, which dockerd accepts since version 23")
    if not text:
        return SettingsFile(DAEMON)
    try:
        value = parse_json(text, DAEMON)
    except InputError as error:
        return SettingsFile(DAEMON, problem=error.faults[0].what, where=error.faults[0].where)
    return read_settings(DAEMON, value)


def is_old(subject: Subject) -> bool:
    """Whether the image's dockerd is older than MARKS_SINCE; no if its version is not known."""
    versions = (subject.packages.get(name, "") for name in DOCKERS)
    majors = [int(found[1]) for version in versions if (found := MAJOR.match(version))]
    return bool(majors) and max(majors) < MARKS_SINCE
