# SPDX-License-Identifier: Apache-2.0
"""Settings of container engines."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from imagebuilder.root import Root

DAEMON = "/etc/docker/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
OLD_NAMES = frozenset(("io.containerd.grpc.v1.cri", "cri"))


def toml_of(root: Root, path: str) -> Mapping[str, Any]:
    """What a file says; nothing if it is not valid, which prove_cri reports."""
    try:
        return tomllib.loads(root.text(path))
    except (ValueError, RecursionError):
        return {}


def value_at(settings: object, *keys: str) -> object:
    """The value below some tables, None if one is not there."""
    for key in keys:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def has_no_cri(settings: Mapping[str, Any]) -> bool:
    """Whether containerd is told to leave out what the kubelet asks."""
    disabled = settings.get("disabled_plugins")
    named = set(map(str, disabled)) if isinstance(disabled, list) else set()
    return bool({"cri", "io.containerd.grpc.v1.cri"} & named)
