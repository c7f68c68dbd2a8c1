# SPDX-License-Identifier: Apache-2.0
"""The network of the NIC that a node booted from, and its names (systemd.network(5), nsswitch(5)).

For a NIC of which nothing is known but that it is wired: what matches by its name, its type or by
everything.  A file that matches by an address, a driver or a place in the machine is for some nodes
and decides nothing here.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.systemd import Startup
from imagebuilder.root import Root

FOLDERS = (
    "/etc/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
)
# What the initrd's systemd-network-generator makes of ip=: overlays/netboot.
BOOT = "71-default.network"
NICS = ("enp1s0", "eno1", "ens1", "eth0")
GENERAL = ("Name", "OriginalName", "Type", "Kind")
NETWORKD, RESOLVED = "systemd-networkd.service", "systemd-resolved.service"
RESOLVER, SWITCH = "/etc/resolv.conf", "/etc/nsswitch.conf"
Sections = Mapping[str, Mapping[str, str]]


def prove_network(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Findings about the boot NIC and about names."""
    if NETWORKD in startup.jobs:
        yield from prove_nic(subject.root)
    yield from prove_resolver(subject.root, startup)
    yield from prove_switch(subject.root)


def prove_nic(root: Root) -> Iterator[Finding]:
    """Faults of files that come before the boot NIC's own, or that give it another address."""
    for path in config_files(root, ".network"):
        sections = read_sections(root.text(path))
        if posixpath.basename(path) >= BOOT or not matches(sections):
            continue
        link, network = sections.get("Link", {}), sections.get("Network", {})
        if link.get("Unmanaged", "").lower() in ("yes", "true", "1", "on"):
            what = "networkd leaves the NIC alone that the node booted from: its lease runs out"
            where = Evidence(path, "Link", said="Unmanaged=yes")
            yield SAY.fault(what, where, hint="let [Match] name the NICs that are meant")
        elif network.get("DHCP", "no").lower() in ("no", "false", "0", "ipv6"):
            what = "the NIC that the node booted from loses its DHCP lease"
            where = Evidence(path, "Network", said=f"DHCP={network.get('DHCP', '')}")
            hint = "let [Match] name the NICs that are meant, or set DHCP=yes"
            yield SAY.fault(what, where, hint=hint)
        break
    for path in config_files(root, ".link"):
        sections = read_sections(root.text(path))
        if not matches(sections):
            continue
        link = sections.get("Link", {})
        if "MACAddress" in link or link.get("MACAddressPolicy") == "random":
            key = "MACAddress" if "MACAddress" in link else "MACAddressPolicy"
            what = "the NIC gets another MAC address than the one that the node booted with"
            where = Evidence(path, "Link", said=f"{key}={link[key]}")
            hint = "let [Match] name the NIC that is meant; DHCP knows nodes by their MAC address"
            yield SAY.fault(what, where, hint=hint)
        break


def config_files(root: Root, ending: str) -> list[str]:
    """The files in effect, in networkd's order; one that is masked is left out."""
    chosen: dict[str, str] = {}
    for folder in FOLDERS:
        for name in root.names(folder):
            if name.endswith(ending):
                chosen.setdefault(name, f"{folder}/{name}")
    return [path for _, path in sorted(chosen.items()) if root.text(path).strip()]


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
    """Whether a file is for every wired NIC, or for one by a usual name."""
    asked = sections.get("Match", {})
    if not asked or set(asked) - set(GENERAL):
        return False
    for key in ("Name", "OriginalName"):
        patterns = asked.get(key, "*").split()
        if not any(fnmatch.fnmatchcase(nic, p) for nic in NICS for p in patterns):
            return False
    kinds = asked.get("Type", "ether").split()
    return "ether" in kinds and asked.get("Kind", "!*") in ("!*", "!bridge", "!bond")


def prove_resolver(root: Root, startup: Startup) -> Iterator[Finding]:
    """Faults of /etc/resolv.conf: it leads to what somebody writes, or has a server."""
    host = root.path / RESOLVER.lstrip("/")
    if not host.is_symlink():
        if not host.exists() and RESOLVED in startup.jobs:
            return  # tmpfiles.d makes the link
        servers = [x for x in root.text(RESOLVER).splitlines() if x.startswith("nameserver")]
        if servers and RESOLVED in startup.jobs:
            what = f"{RESOLVER} is a file with a server of its own: what {RESOLVED} learns by DHCP "
            what += "is not asked"
            hint = "let it lead to /run/systemd/resolve/stub-resolv.conf"
            yield SAY.warning(what, Evidence(RESOLVER, said=servers[0]), hint=hint)
        if not any(line.startswith("nameserver") for line in root.text(RESOLVER).splitlines()):
            hint = "let it lead to /run/systemd/resolve/stub-resolv.conf"
            yield SAY.fault("/etc/resolv.conf names no server", Evidence(RESOLVER), hint=hint)
        return
    link = host.readlink()
    target = posixpath.normpath(posixpath.join("/etc", link))
    of_resolved = target.startswith("/run/systemd/resolve/")
    if of_resolved and RESOLVED not in startup.jobs:
        what = f"{RESOLVER} leads to {target}, which nobody writes: {RESOLVED} does not start"
        yield SAY.fault(what, Evidence(RESOLVER, said=str(link)), hint=f"enable {RESOLVED}")
    elif not target.startswith("/run/") and not root.is_file(target):
        what = f"{RESOLVER} leads to {target}, which is not there: no name is found"
        hint = "let it lead to /run/systemd/resolve/stub-resolv.conf"
        yield SAY.fault(what, Evidence(RESOLVER, said=str(link)), hint=hint)


def prove_switch(root: Root) -> Iterator[Finding]:
    """Faults of /etc/nsswitch.conf: host names come from DNS, accounts from files."""
    lines = root.text(SWITCH).splitlines()
    asked = {
        "hosts": {"dns", "resolve"},
        "passwd": {"files", "compat"},
        "group": {"files", "compat"},
    }
    for database, sources in asked.items():
        line = next((x for x in lines if x.split(":")[0].strip() == database), "")
        words = line.partition(":")[2].partition("#")[0].split()
        if line and not sources & set(words):
            what = f"{database} are not looked up in {' or '.join(sorted(sources))}"
            hint = f"add {min(sources)} to that line of {SWITCH}"
            yield SAY.fault(what, Evidence(SWITCH, said=line), hint=hint)
