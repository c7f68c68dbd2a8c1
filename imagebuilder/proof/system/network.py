# SPDX-License-Identifier: Apache-2.0
"""The network of the NIC that a node booted from, and name resolution (systemd.network(5),
nsswitch(5)).

The NIC is only known to be wired: files count that match its name, its type or everything.  A file
that matches an address, a driver or a slot is for some nodes only, and is ignored here.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.config import config_files
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.systemd import Startup
from imagebuilder.root import Root

FOLDERS = ("/etc/systemd/network", "/usr/local/lib/systemd/network", "/usr/lib/systemd/network")
# The file that the initrd's systemd-network-generator makes from ip=: overlays/netboot.
BOOT = "71-default.network"
NICS = ("enp1s0", "eno1", "ens1", "eth0")
GENERAL = ("Name", "OriginalName", "Type", "Kind")
NETWORKD, RESOLVED = "systemd-networkd.service", "systemd-resolved.service"
LINK = "make it a link to /run/systemd/resolve/stub-resolv.conf"
RESOLVER, SWITCH = "/etc/resolv.conf", "/etc/nsswitch.conf"
Sections = Mapping[str, Mapping[str, str]]


def prove_network(subject: Subject, startup: Startup) -> Iterator[Finding]:
    if NETWORKD in startup.jobs:
        yield from prove_nic(subject.root)
    yield from prove_resolver(subject.root, startup)
    yield from prove_switch(subject.root)


def prove_nic(root: Root) -> Iterator[Finding]:
    """Faults of files that override the boot NIC's own, or change its address."""
    for path in network_files(root, ".network"):
        sections = read_sections(root.text(path))
        if posixpath.basename(path) >= BOOT or not matches(sections):
            continue
        link, network = sections.get("Link", {}), sections.get("Network", {})
        if link.get("Unmanaged", "").lower() in ("yes", "true", "1", "on"):
            what = "networkd does not manage the NIC that the node booted from: its lease expires"
            where = Evidence(path, "Link", said="Unmanaged=yes")
            yield SAY.fault(what, where, hint="make [Match] name only the intended NICs")
        elif network.get("DHCP", "no").lower() in ("no", "false", "0", "ipv6"):
            what = "the NIC that the node booted from loses its DHCP lease"
            where = Evidence(path, "Network", said=f"DHCP={network.get('DHCP', '')}")
            hint = "make [Match] name only the intended NICs, or set DHCP=yes"
            yield SAY.fault(what, where, hint=hint)
        break
    for path in network_files(root, ".link"):
        sections = read_sections(root.text(path))
        if not matches(sections):
            continue
        link = sections.get("Link", {})
        if "MACAddress" in link or link.get("MACAddressPolicy") == "random":
            key = "MACAddress" if "MACAddress" in link else "MACAddressPolicy"
            what = "the NIC gets a MAC address other than the one that the node booted with"
            where = Evidence(path, "Link", said=f"{key}={link[key]}")
            hint = "make [Match] name only the intended NIC; DHCP knows nodes by their MAC address"
            yield SAY.fault(what, where, hint=hint)
        break


def network_files(root: Root, ending: str) -> list[str]:
    """The effective files in networkd's order, without masked ones."""
    return [path for path in config_files(root, FOLDERS, ending) if root.text(path).strip()]


def read_sections(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    section = ""
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            found.setdefault(section, {})
        elif "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            found.setdefault(section, {})[key.strip()] = value.strip()
    return found


def matches(sections: Sections) -> bool:
    """Whether a file applies to every wired NIC, or to one with a usual name."""
    match = sections.get("Match", {})
    if not match or set(match) - set(GENERAL):
        return False
    for key in ("Name", "OriginalName"):
        patterns = match.get(key, "*").split()
        if not any(fnmatch.fnmatchcase(nic, p) for nic in NICS for p in patterns):
            return False
    kinds = match.get("Type", "ether").split()
    return "ether" in kinds and match.get("Kind", "!*") in ("!*", "!bridge", "!bond")


def prove_resolver(root: Root, startup: Startup) -> Iterator[Finding]:
    """Faults of /etc/resolv.conf, which must name a server or lead to a file that gets one."""
    host = root.path / RESOLVER.lstrip("/")
    if not host.is_symlink():
        if not host.exists() and RESOLVED in startup.jobs:
            return  # tmpfiles.d makes the link
        servers = [x for x in root.text(RESOLVER).splitlines() if x.startswith("nameserver")]
        if servers and RESOLVED in startup.jobs:
            what = f"{RESOLVER} is a file with a server of its own: servers that {RESOLVED} learns "
            what += "by DHCP are not used"
            yield SAY.warning(what, Evidence(RESOLVER, said=servers[0]), hint=LINK)
        if not servers:
            yield SAY.fault("/etc/resolv.conf names no server", Evidence(RESOLVER), hint=LINK)
        return
    link = host.readlink()
    target = posixpath.normpath(posixpath.join("/etc", link))
    of_resolved = target.startswith("/run/systemd/resolve/")
    if of_resolved and RESOLVED not in startup.jobs:
        what = f"{RESOLVER} leads to {target}, which nothing writes: {RESOLVED} does not start"
        yield SAY.fault(what, Evidence(RESOLVER, said=str(link)), hint=f"enable {RESOLVED}")
    elif not target.startswith("/run/") and not root.is_file(target):
        what = f"{RESOLVER} leads to {target}, which does not exist: no name can be resolved"
        yield SAY.fault(what, Evidence(RESOLVER, said=str(link)), hint=LINK)


def prove_switch(root: Root) -> Iterator[Finding]:
    """Faults of /etc/nsswitch.conf: host names come from DNS, accounts from files."""
    lines = root.text(SWITCH).splitlines()
    expected = {
        "hosts": {"dns", "resolve"},
        "passwd": {"files", "compat"},
        "group": {"files", "compat"},
    }
    for database, sources in expected.items():
        line = next((x for x in lines if x.split(":")[0].strip() == database), "")
        words = line.partition(":")[2].partition("#")[0].split()
        if line and not sources & set(words):
            what = f"{database} are not looked up in {' or '.join(sorted(sources))}"
            hint = f"add {min(sources)} to that line of {SWITCH}"
            yield SAY.fault(what, Evidence(SWITCH, said=line), hint=hint)
