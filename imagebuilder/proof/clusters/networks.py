# SPDX-License-Identifier: Apache-2.0
"""Networks of pods: of several files in a folder, the runtime of a kubelet takes one."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.reading.containers import (
    CNI,
    CONTAINERD,
    CRI_NAMES,
    CRIO,
    CniNetwork,
    read_containerd,
    read_networks,
    value_at,
)
from imagebuilder.proof.reading.documents import read_toml
from imagebuilder.proof.reading.site import SiteService
from imagebuilder.root import Root

# Plugins that connect the containers of one machine, with addresses out of a range of its own.
OF_ONE_NODE = frozenset(("bridge", "ptp"))


def prove_networks(
    root: Root, kubelet: SiteService, settings: Mapping[str, Any]
) -> Iterator[Finding]:
    """A warning of a network of one node that hides the one of the cluster.

    containerd and CRI-O take the first file by name (max_conf_num in docs/cri/config.md of
    containerd; contrib/cni/README.md of CRI-O).  With a bridge and a fixed range, pods of all nodes
    get the same addresses.
    """
    told = kubelet.option("--container-runtime-endpoint")
    endpoint = told or str(settings.get("containerRuntimeEndpoint", CONTAINERD))
    runtime = "CRI-O" if "crio" in endpoint else "containerd"
    folder = folder_of_crio(root) if runtime == "CRI-O" else folder_of_containerd(root)
    networks = list(read_networks(root, folder)) if folder else []
    if not networks or networks[0].plugin not in OF_ONE_NODE or not networks[0].ranges:
        return
    first = networks[0]
    if other := next((n for n in networks[1:] if is_of_cluster(n)), None):
        names = [posixpath.basename(each.path) for each in (first, other)]
        what = f"{runtime} takes {names[0]} of {folder} for pods, a {first.plugin} of each node "
        what += f"with {first.ranges[0]}, and not {names[1]} ({other.plugin}), whose name sorts "
        what += "after it: pods of several nodes have the same addresses, and do not reach each "
        what += "other"
        where = (Evidence(first.path, said=first.plugin), Evidence(other.path, said=other.plugin))
        hint = f"remove {names[0]}, or give it a name that sorts after {names[1]}"
        yield SAY.warning(what, *where, hint=hint)


def is_of_cluster(network: CniNetwork) -> bool:
    """Whether a network has a plugin of its own, or leaves its range to one (kube-router)."""
    return network.plugin not in OF_ONE_NODE or not network.ranges


def folder_of_containerd(root: Root) -> str:
    """The folder of which containerd takes the first file, "" if it takes more of them."""
    settings = read_containerd(root).values
    found = [value_at(settings, "plugins", name, "cni") for name in CRI_NAMES]
    cni = next((each for each in found if isinstance(each, dict)), {})
    return str(cni.get("conf_dir", CNI)) if cni.get("max_conf_num", 1) == 1 else ""


def folder_of_crio(root: Root) -> str:
    """The folder of which CRI-O takes the first file, "" if it takes one by the network's name."""
    folder, name = CNI, ""
    for path in (path for pattern in CRIO for path in root.glob(pattern)):
        network = value_at(read_toml(root, path).values, "crio", "network")
        if isinstance(network, dict):
            folder = str(network.get("network_dir", folder))
            name = str(network.get("cni_default_network", name))
    return "" if name else folder
