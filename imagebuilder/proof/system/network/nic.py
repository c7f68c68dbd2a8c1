# SPDX-License-Identifier: Apache-2.0
"""NICs and names: the network of the one that a node booted from, virtual ones, and the ends of
containers'.

The NIC is only known to be wired: files count that match its name, its type or everything.  A file
that matches an address, a driver or a slot is for some nodes only, and is ignored here.  networkd
takes the first file that matches, by name; of two with one name that in the first folder.

Names are those of /etc/resolv.conf, nsswitch.conf(5), and DNS over TLS (resolved.conf(5)): a strict
resolver needs servers that speak TLS.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.reading.commands import options_of
from imagebuilder.proof.reading.config import TRUE, assignments, is_false, is_true
from imagebuilder.proof.reading.networkd import (
    BOOT,
    FOLDERS,
    KNOWN,
    NETWORKD,
    RESOLVED,
    Sections,
    additions,
    matches,
    network_files,
    read_sections,
    setter,
    text_of,
)
from imagebuilder.proof.reading.systemd import Startup, last_lines, read_config
from imagebuilder.proof.reading.texts import parse_address, whole
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.say import some
from imagebuilder.proof.services.containers import ENGINES
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

FAST = 10**9  # bits per second
ETHERNET = 1500  # bytes of a frame that every switch takes
DOWN = ("down", "always-down")
# With these networkd keeps an address that the initrd got by DHCP, whatever happens.
KEEPING = (*TRUE, "dhcp", "dynamic")
WAITING = "systemd-networkd-wait-online.service"
EVERYTHING = frozenset(("0.0.0.0/0", "0/0"))
MAIN = frozenset(("main", "254"))
PEER, TUNNEL = "WireGuardPeer", "WireGuard"
# Kinds that lie upon another NIC, whose .network file names them by this key.
CARRIED = {"vlan": "VLAN", "macvlan": "MACVLAN", "macvtap": "MACVTAP", "ipvlan": "IPVLAN"}
# An end as Docker, containerd's CNI plugins and podman name it; it is a virtual device, has no
# path, and udev calls its type ether (systemd/systemd #38836, #28626).
VETH = {
    **KNOWN,
    "Name": ("veth0a1b2c3",),
    "OriginalName": ("veth0a1b2c3",),
    "Kind": ("veth",),
    "Driver": ("veth",),
    "Path": ("",),
}
# Lines of .network files and their drop-ins that give an interface its own choice.
OF_INTERFACE = re.compile(r"^[ \t]*(DNSOverTLS\s*=\s*(no|opportunistic)|DNS\s*=.*#)", re.MULTILINE)
LINK = "make it a link to /run/systemd/resolve/stub-resolv.conf"
RESOLVER, SWITCH = "/etc/resolv.conf", "/etc/nsswitch.conf"


def prove_network(subject: Subject) -> Findings:
    if NETWORKD in subject.startup.jobs:
        yield from prove_nic(subject.root)
        yield from prove_waiting(subject.startup)
    yield from prove_resolver(subject.root, subject.startup)
    yield from prove_switch(subject.root)


def prove_nic(root: Root) -> Findings:
    for path in network_files(root, ".network"):
        sections = read_sections(text_of(root, path))
        for each in additions(root, path):
            for section, values in read_sections(text_of(root, each)).items():
                sections[section] = {**sections.get(section, {}), **values}
        if matches(sections):
            yield from prove_settings(root, path, sections)
            if not path.endswith(posixpath.basename(BOOT)):  # who changes that one means this NIC
                yield from prove_frames(setter(root, path, "MTUBytes"), sections.get("Link", {}))
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
            hint = "make [Match] name only the intended NIC; DHCP identifies nodes by MAC address"
            yield fault(what, where, hint=hint)
        yield from prove_speed(path, link)
        yield from prove_frames(path, link)
        break
    yield from prove_order(root)


def prove_order(root: Root) -> Findings:
    """Warnings of .link files that come second: udev takes the first (systemd.link(5))."""
    seen: list[tuple[str, dict[str, dict[str, str]]]] = []
    for path in network_files(root, ".link"):
        sections = read_sections(root.text(path))
        match = sections.get("Match", {})
        first = next((each for each in seen if each[1].get("Match") == match), None)
        if set(match) <= {"Type", "Kind"}:
            seen.append((path, sections))
        if first is None or not path.startswith("/etc/"):
            continue
        lost = sections.get("Link", {}).keys() - first[1].get("Link", {}).keys()
        if lost:
            what = f"{path} has no effect: {first[0]} matches the same NICs and comes first, so "
            what += f"that {some(sorted(lost))} is not set"
            where = (Evidence(path, "Match"), Evidence(first[0], "Match"))
            yield warning(what, *where, hint="put the settings of both into one file")


def prove_speed(path: str, link: Mapping[str, str]) -> Findings:
    """A fault of a NIC that is made slower than any server's is."""
    size = re.fullmatch(r"(\d+)([KMGT]?)", link.get("BitsPerSecond", ""))
    bits = whole(size[1]) * 1000 ** " KMGT".index(size[2] or " ") if size else FAST
    slow = [f"BitsPerSecond={link['BitsPerSecond']}"] if bits < FAST else []
    slow += ["Duplex=half"] if link.get("Duplex") == "half" else []
    if slow:
        what = f"{posixpath.basename(path)} slows down the NIC that the node booted from: "
        what += " and ".join(slow)
        where = Evidence(path, "Link", said=" ".join(slow))
        yield fault(what, where, hint="remove it: NIC and switch negotiate the speed")


def prove_frames(path: str, link: Mapping[str, str]) -> Findings:
    """A warning of frames that a switch may not take: small packets pass, and large ones do not."""
    size = re.fullmatch(r"(\d+)([KM]?)", said := link.get("MTUBytes", ""))
    if size and whole(size[1]) << 10 * " KM".index(size[2] or " ") > ETHERNET:
        what = (
            f"{posixpath.basename(path)} gives the NIC that the node booted from MTUBytes={said}: "
        )
        what += "if its switch takes no jumbo frames, ssh and NFS hang"
        hint = "make [Match] name only the NICs whose switch takes them"
        yield warning(what, Evidence(path, "Link", said=f"MTUBytes={said}"), hint=hint)


def prove_settings(root: Root, path: str, sections: Sections) -> Findings:
    link, network = sections.get("Link", {}), sections.get("Network", {})
    only = "make [Match] name only the intended NICs"
    if is_true(link.get("Unmanaged", "")):
        what = "networkd does not manage the NIC that the node booted from: its lease expires"
        where = Evidence(setter(root, path, "Unmanaged"), "Link", said="Unmanaged=yes")
        yield fault(what, where, hint=only)
    elif (policy := link.get("ActivationPolicy", "")) in DOWN:
        said = f"ActivationPolicy={policy}"
        what = f"the NIC that the node booted from loses its link: {said} takes it down"
        where = Evidence(setter(root, path, "ActivationPolicy"), "Link", said=said)
        yield fault(what, where, hint=only)
    elif is_false(dhcp := network.get("DHCP", "no")) or dhcp.lower() == "ipv6":
        what = "the NIC that the node booted from loses its DHCP lease"
        where = Evidence(setter(root, path, "DHCP"), "Network", said=f"DHCP={dhcp}")
        yield fault(what, where, hint=f"{only}, or set DHCP=yes")
    elif network.get("KeepConfiguration", "no").lower() not in KEEPING:
        what = f"{posixpath.basename(path)} is used for the NIC that the node booted from, but "
        what += "without KeepConfiguration=yes: networkd drops the address that the root is "
        what += "mounted over"
        where = Evidence(setter(root, path, "KeepConfiguration"), "Network", said=f"DHCP={dhcp}")
        hint = f"{only}, or add KeepConfiguration=yes, and ClientIdentifier=mac to [DHCPv4]"
        yield fault(what, where, hint=hint)
    elif (sections.get("DHCPv4") or sections.get("DHCP", {})).get("ClientIdentifier") != "mac":
        what = f"{posixpath.basename(path)} is used for the NIC that the node booted from, but "
        what += "without ClientIdentifier=mac: the node takes a second address"
        where = Evidence(setter(root, path, "ClientIdentifier"), "DHCPv4")
        yield warning(what, where, hint="add ClientIdentifier=mac to [DHCPv4]")


def prove_waiting(startup: Startup) -> Findings:
    """A finding if boot waits for NICs that a node may lack, or that may have no cable.

    Without `--any`, systemd-networkd-wait-online(8) waits for all that networkd manages.
    """
    unit = startup.units.get(WAITING)
    words = unit.commands.get("ExecStart", ((),))[-1] if unit else ()
    named = [each.value for each in options_of(words, ("-i", "--interface"))]
    if unit is None or WAITING not in startup.jobs or ("--any" in words and not named):
        return
    seconds = ["120", *(each.value for each in options_of(words, ("--timeout",)))][-1]
    whom = " and ".join(named) or "every NIC"
    lacks = f"without {named[0]}" if named else "with a NIC without a cable"
    where = Evidence(unit.paths[-1] if unit.paths else WAITING, said=" ".join(words))
    if seconds == "0":
        what = f"boot waits for {whom} for ever: a node {lacks} never reaches "
        what += "network-online.target, and no service that comes after it starts"
        yield fault(what, where, hint="use --any, and a --timeout= other than 0")
    elif not named:
        what = f"boot waits {seconds} s for {whom}: each boot of a node {lacks} takes that long"
        yield warning(what, where, hint="use --any")


def prove_netdevs(subject: Subject) -> Findings:
    if NETWORKD not in subject.startup.jobs:
        return
    root = subject.root
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
            yield warning(what, Evidence(path, "NetDev", said=f"Name={name}"), hint=hint)
        yield from prove_tunnel(path, sections, name)


def prove_tunnel(path: str, sections: dict[str, dict[str, str]], name: str) -> Findings:
    """A warning of a tunnel with all routes in the main table, without a rule for itself."""
    peer, tunnel = sections.get(PEER, {}), sections.get(TUNNEL, {})
    table = peer.get("RouteTable") or tunnel.get("RouteTable", "")
    allowed = {word.strip() for word in peer.get("AllowedIPs", "").split(",")}
    if table.lower() in MAIN and EVERYTHING & allowed:
        said = f"RouteTable={table} AllowedIPs={peer['AllowedIPs']}"
        what = f"all traffic of the node goes through {name}, the tunnel's own packets too: what "
        what += "is not in the node's own network, such as an NFS server, is out of reach"
        hint = "list the networks behind the tunnel in AllowedIPs=, or use a table of its own"
        yield warning(what, Evidence(path, PEER, said=said), hint=hint)


def prove_ends(subject: Subject) -> Findings:
    """A warning if the first file that matches the ends asks for addresses or sets some, where the
    image has a container engine: networkd then configures what belongs to the engine
    (systemd.network(5), [Match] Kind=).
    """
    root, started = subject.root, NETWORKD in subject.startup.jobs
    if not started or not any(find_program(root, name) for name in ENGINES):
        return
    for path in network_files(root, ".network"):
        texts = [text_of(root, each) for each in (path, *additions(root, path))]
        sections = read_sections("\n".join(texts))
        if not matches(sections, VETH):
            continue
        network = sections.get("Network", {})
        asks = not is_false(network.get("DHCP", "no")) or "Address" in network
        if asks and not is_true(sections.get("Link", {}).get("Unmanaged", "")):
            said = " ".join(f"{key}={value}" for key, value in sections["Match"].items())
            what = f"{path} matches the ends of containers' networks too ({said}): networkd "
            what += "gives them addresses, and containers lose their network"
            hint = "add Kind=!* to [Match], which leaves out virtual interfaces"
            yield warning(what, Evidence(path, "Match", said=said), hint=hint)
        return


def prove_stub(subject: Subject) -> Findings:
    """A fault if programs ask the resolver of the node, which does not listen."""
    line = last_lines(subject, "systemd/resolved.conf").get("DNSStubListener")
    link = subject.root.link_at(RESOLVER) or ""
    stub = posixpath.basename(link) == "stub-resolv.conf"
    if line and is_false(line.value) and stub and RESOLVED in subject.startup.jobs:
        what = f"{RESOLVER} leads to the stub of {RESOLVED}, which does not listen: no name is "
        what += "resolved"
        hint = "remove DNSStubListener=, or link to /run/systemd/resolve/resolv.conf"
        yield fault(what, line.evidence, Evidence(RESOLVER, said=link), hint=hint)


def prove_tls(subject: Subject) -> Findings:
    """A fault if only servers of DHCP may be asked by TLS; a warning of those without a name."""
    lines = list(read_config(subject, "systemd/resolved.conf"))
    strict = next((line for line in reversed(lines) if line.key == "DNSOverTLS"), None)
    if strict is None or not is_true(strict.value) or RESOLVED not in subject.startup.jobs:
        return
    servers: list[str] = []
    for line in lines:
        if line.key == "DNS":
            servers = servers + line.value.split() if line.value else []
    ends = ("*.network", "*.network.d/*.conf")
    files = subject.root.glob(*(f"{folder}/{end}" for folder in FOLDERS for end in ends))
    choices = map(OF_INTERFACE.search, map(subject.root.text, files))
    if any(map(has_certificate, servers)) or any(choices):
        return
    said = f"DNSOverTLS={strict.value}"
    if servers:
        what = f"{said}, but {servers[0]} has no host name: it may have no valid certificate"
        hint = f"append the name of the certificate: DNS={servers[0]}#HOST"
        yield warning(what, strict.evidence, hint=hint)
        return
    what = f"{said}, but no DNS= names a server that speaks it: the servers of DHCP are asked over "
    what += "TLS only, and no name is resolved"
    hint = "use DNSOverTLS=opportunistic, or name a server: DNS=ADDRESS#HOST"
    yield fault(what, strict.evidence, hint=hint)


def has_certificate(server: str) -> bool:
    """Whether `ADDRESS[:PORT][%INTERFACE][#HOST]` has a host name or a public address."""
    address, _, host = server.partition("#")
    address = address.partition("%")[0]
    for each in (address, address.rpartition(":")[0].strip("[]")):
        if found := parse_address(each):
            return bool(host) or found.is_global
    return bool(host)


def prove_resolver(root: Root, startup: Startup) -> Findings:
    """Faults of /etc/resolv.conf, which must name a server or lead to a file that gets one."""
    host = root.path / RESOLVER.lstrip("/")
    if not host.is_symlink():
        if not host.exists() and RESOLVED in startup.jobs:
            return  # tmpfiles.d makes the link
        servers = [x for x in root.text(RESOLVER).splitlines() if x.startswith("nameserver")]
        if servers and RESOLVED in startup.jobs:
            what = f"{RESOLVER} is a file with a server of its own: servers that {RESOLVED} learns "
            what += "by DHCP are not used"
            yield warning(what, Evidence(RESOLVER, said=servers[0]), hint=LINK)
        if not servers:
            yield fault("/etc/resolv.conf names no server", Evidence(RESOLVER), hint=LINK)
        return
    link = host.readlink()
    target = posixpath.normpath(posixpath.join("/etc", link))
    of_resolved = target.startswith("/run/systemd/resolve/")
    if of_resolved and RESOLVED not in startup.jobs:
        what = f"{RESOLVER} leads to {target}, which nothing writes: {RESOLVED} does not start"
        yield fault(what, Evidence(RESOLVER, said=str(link)), hint=f"enable {RESOLVED}")
    elif not target.startswith("/run/") and not root.is_file(target):
        what = f"{RESOLVER} leads to {target}, which does not exist: no name can be resolved"
        yield fault(what, Evidence(RESOLVER, said=str(link)), hint=LINK)


def prove_switch(root: Root) -> Findings:
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
            what = f"{database} entries are not looked up in {' or '.join(sorted(sources))}"
            hint = f"add {min(sources)} to that line of {SWITCH}"
            yield fault(what, Evidence(SWITCH, said=line), hint=hint)
