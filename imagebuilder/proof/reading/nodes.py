# SPDX-License-Identifier: Apache-2.0
"""Device nodes of cards and NPUs, by the beginning of their paths."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

NVIDIA, NPU = "/dev/nvidia", "/dev/accel/"


@dataclass(frozen=True)
class NodeFamily:
    """Device nodes with one beginning, the backends that open them, and their names in
    /proc/devices.

    `kind`: what is only useful together has the same; "" if it does not compute.  The nodes that
    the kernel's `modules` make are `path`.
    """

    begin: str
    kind: str
    drivers: tuple[str, ...]
    subsystem: str = ""
    backends: tuple[str, ...] = ()
    path: str = ""
    modules: tuple[str, ...] = ()


# A longer beginning stands before a shorter one.
FAMILIES = (
    NodeFamily("/dev/dri/", "drm", ("drm",), "drm", ("hip", "vulkan", "sycl"),
               "/dev/dri/renderD*", ("amdgpu", "i915", "xe")),
    NodeFamily("/dev/kfd", "drm", ("kfd",), "kfd", ("hip",)),
    NodeFamily(NPU, "accel", ("accel",), "accel", (), "/dev/accel/accel*", ("amdxdna",)),
    NodeFamily("/dev/nvidia-uvm", "nvidia", ("nvidia-uvm",)),
    NodeFamily("/dev/nvidia-caps", "nvidia", ("nvidia-caps",)),
    NodeFamily(NVIDIA, "nvidia", ("nvidia", "nvidia-frontend", "nvidiactl"),
               backends=("cuda", "vulkan")),
    NodeFamily("/dev/infiniband/uverbs", "", ("infiniband_verbs",), "infiniband_verbs"),
)  # fmt: skip


def find_family(path: str) -> NodeFamily | None:
    return next((family for family in FAMILIES if path.startswith(family.begin)), None)


def opened_by(backends: Collection[str]) -> tuple[str, ...]:
    """The beginnings of the nodes that some backends open."""
    return tuple(f.begin for f in FAMILIES if not set(f.backends).isdisjoint(backends))
