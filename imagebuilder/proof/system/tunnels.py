# SPDX-License-Identifier: Apache-2.0
"""Tunnels that take the node's whole traffic, that of its root among it (systemd.netdev(5))."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.network import NETWORKD, network_files, read_sections
from imagebuilder.root import Root

EVERYTHING = frozenset(("0.0.0.0/0", "0/0"))
MAIN = frozenset(("main", "254"))
PEER, TUNNEL = "WireGuardPeer", "WireGuard"


def prove_tunnels(root: Root, startup: Startup) -> Iterator[Finding]:
    """Warnings of tunnels whose route to everything is in the main table: networkd writes no rule
    for the packets of the tunnel itself.
    """
    for path in network_files(root, ".netdev") if NETWORKD in startup.jobs else ():
        sections = read_sections(root.text(path))
        peer, tunnel = sections.get(PEER, {}), sections.get(TUNNEL, {})
        table = peer.get("RouteTable") or tunnel.get("RouteTable", "")
        allowed = {word.strip() for word in peer.get("AllowedIPs", "").split(",")}
        if table.lower() in MAIN and EVERYTHING & allowed:
            said = f"RouteTable={table} AllowedIPs={peer['AllowedIPs']}"
            name = sections.get("NetDev", {}).get("Name", path)
            what = f"all traffic of the node goes through {name}, the tunnel's own packets too: "
            what += "what is not in the node's own network, such as an NFS server, is out of reach"
            hint = "list the networks behind the tunnel in AllowedIPs=, or use a table of its own"
            yield SAY.warning(what, Evidence(path, PEER, said=said), hint=hint)
