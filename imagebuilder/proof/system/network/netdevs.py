# SPDX-License-Identifier: Apache-2.0
"""Virtual NICs (systemd.netdev(5)): those that networkd never makes, and tunnels that take all
traffic of a node, that of its root among it.
"""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import assignments
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.network.nic import NETWORKD, network_files, read_sections
from imagebuilder.root import Root

EVERYTHING = frozenset(("0.0.0.0/0", "0/0"))
MAIN = frozenset(("main", "254"))
PEER, TUNNEL = "WireGuardPeer", "WireGuard"
# Kinds that lie upon another NIC, whose .network file names them by this key.
CARRIED = {"vlan": "VLAN", "macvlan": "MACVLAN", "macvtap": "MACVTAP", "ipvlan": "IPVLAN"}


def prove_netdevs(root: Root, startup: Startup) -> Iterator[Finding]:
    if NETWORKD not in startup.jobs:
        return
    named = {
        (key, name)
        for path in network_files(root, ".network")
        for section, key, value in assignments(root.text(path))
        for name in value.split()
        if section == "Network"
    }
    for path in network_files(root, ".netdev"):
        sections = read_sections(root.text(path))
        made = sections.get("NetDev", {})
        key, name = CARRIED.get(made.get("Kind", "").lower(), ""), made.get("Name", path)
        if key and (key, name) not in named:
            what = f"networkd never makes {name}: no .network file has {key}={name}"
            hint = f"add {key}={name} to [Network] in the .network file of the NIC that carries it"
            yield SAY.warning(what, Evidence(path, "NetDev", said=f"Name={name}"), hint=hint)
        yield from prove_tunnel(path, sections, name)


def prove_tunnel(path: str, sections: dict[str, dict[str, str]], name: str) -> Iterator[Finding]:
    """A warning of a tunnel whose route to everything is in the main table: networkd writes no rule
    for the packets of the tunnel itself.
    """
    peer, tunnel = sections.get(PEER, {}), sections.get(TUNNEL, {})
    table = peer.get("RouteTable") or tunnel.get("RouteTable", "")
    allowed = {word.strip() for word in peer.get("AllowedIPs", "").split(",")}
    if table.lower() in MAIN and EVERYTHING & allowed:
        said = f"RouteTable={table} AllowedIPs={peer['AllowedIPs']}"
        what = f"all traffic of the node goes through {name}, the tunnel's own packets too: what "
        what += "is not in the node's own network, such as an NFS server, is out of reach"
        hint = "list the networks behind the tunnel in AllowedIPs=, or use a table of its own"
        yield SAY.warning(what, Evidence(path, PEER, said=said), hint=hint)
