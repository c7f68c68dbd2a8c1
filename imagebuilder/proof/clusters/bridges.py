# SPDX-License-Identifier: Apache-2.0
"""Networks that a container engine makes on every node, over addresses that the node needs: it
then sends what is meant for them to its own containers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network
from typing import Any

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.reading.containers import CNI, DAEMON, read_daemon, read_networks
from imagebuilder.proof.reading.mounts import find_mounts
from imagebuilder.proof.reading.site import SiteService, services_of
from imagebuilder.proof.reading.systemd import Startup, read_config
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# Docker's bridge gets the first of its pools (docs.docker.com, "default-address-pools").
DEFAULT = "172.17.0.0/16"
BRIDGE, NONE = "docker0", ("none",)
HOSTS = "/etc/hosts"
# In the device of a mount: the server of NFS, of SMB, of Lustre and of Ceph.
SERVER = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])|^(?://)?([A-Za-z][\w.-]*)[:/@]")
REMOTE = re.compile(r"nfs4?|cifs|smb3|lustre|ceph|glusterfs|beegfs|9p|fuse\.\w+")
# Files of systemd with addresses of other machines, and the keys of those.
FILES = (("systemd/resolved.conf", ("DNS", "FallbackDNS")), ("systemd/timesyncd.conf", ("NTP",)))
CHRONY = ("/etc/chrony/chrony.conf", "/etc/chrony.conf", "/etc/chrony/conf.d/*.conf",
          "/etc/chrony/sources.d/*.sources")  # fmt: skip
CHRONY_LINE = re.compile(r"^[ \t]*(?:server|peer)[ \t]+(\d{1,3}(?:\.\d{1,3}){3})\b", re.MULTILINE)


@dataclass(frozen=True)
class Bridge:
    """A network of containers on each node, who makes it, and what sets it."""

    network: IPv4Network
    name: str
    evidence: Evidence


@dataclass(frozen=True)
class NeededAddress:
    """The address of another machine, and what needs it."""

    address: IPv4Address
    user: str
    evidence: Evidence


def prove_bridges(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """A warning for each: Docker takes another network where a NIC of the node is in that one."""
    bridges = list(find_bridges(subject, startup))
    for each in needed_addresses(subject) if bridges else ():
        for bridge in bridges:
            if each.address in bridge.network:
                what = (
                    f"{each.user} cannot be reached: {each.address} is in {bridge.network}, which "
                )
                what += f"{bridge.name} takes on every node"
                hint = 'choose networks that the site does not use: "bip" and '
                hint += f'"default-address-pools" in {DAEMON}'
                if bridge.name != BRIDGE:
                    hint = "choose a network that the site does not use"
                yield SAY.warning(what, each.evidence, bridge.evidence, hint=hint)


def find_bridges(subject: Subject, startup: Startup) -> Iterator[Bridge]:
    read = read_daemon(subject)
    for service in services_of(subject, startup, "dockerd") if not read.problem else ():
        yield from bridge_of_docker(service, read.values)
        break
    if any(any(services_of(subject, startup, each)) for each in ("kubelet", "crio")):
        for network in read_networks(subject.root, CNI):
            for text in network.ranges:
                if (parsed := network_of(text)) and network.plugin in ("bridge", "ptp"):
                    said = f"the {network.plugin} of {network.path}"
                    yield Bridge(parsed, said, Evidence(network.path, said=text))


def bridge_of_docker(service: SiteService, settings: Mapping[str, Any]) -> Iterator[Bridge]:
    """The network of docker0, unless another program makes the bridge or there is none."""
    bridge = service.option("--bridge", "-b") or settings.get("bridge")
    told = service.option("--bip") or settings.get("bip")
    pools = settings.get("default-address-pools")
    first = pools[0] if isinstance(pools, list) and pools else None
    base = first.get("base") if isinstance(first, dict) else None
    pool_option = service.option("--default-address-pool") or ""
    base = base or next(iter(re.findall(r"base=([\d./]+)", pool_option)), None)
    if bridge:
        return
    where = Evidence(DAEMON, symbol="bip" if told else "default-address-pools")
    where = where if told or base else service.evidence
    if network := network_of(str(told or base or DEFAULT)):
        yield Bridge(network, BRIDGE, where)


def network_of(text: str) -> IPv4Network | None:
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Network) else None


def needed_addresses(subject: Subject) -> Iterator[NeededAddress]:
    """The servers of mounts, of names and of time."""
    names = dict(named_addresses(subject.root))
    for mount in find_mounts(subject):
        for number, name in SERVER.findall(mount.device) if REMOTE.fullmatch(mount.kind) else ():
            text = number or names.get(name, "")
            yield from needed(text, f"the server of {mount.place or mount.name}", mount.evidence)
    for file, keys in FILES:
        for line in read_config(subject, file):
            for word in line.value.split() if line.key in keys else ():
                yield from needed(word.partition("#")[0], f"{line.key}= of {file}", line.evidence)
    for path in (path for pattern in CHRONY for path in subject.root.glob(pattern)):
        for text in CHRONY_LINE.findall(subject.root.text(path)):
            yield from needed(text, f"a server of {path}", Evidence(path, said=text))


def needed(text: str, user: str, where: Evidence) -> Iterator[NeededAddress]:
    try:
        address = ip_address(text)
    except ValueError:
        return
    if isinstance(address, IPv4Address) and not address.is_loopback:
        yield NeededAddress(address, user, where)


def named_addresses(root: Root) -> Iterator[tuple[str, str]]:
    """The names in /etc/hosts, with their addresses."""
    for line in root.text(HOSTS).splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        yield from ((name, address) for name in names)
