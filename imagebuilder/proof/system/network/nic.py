# SPDX-License-Identifier: Apache-2.0
"""The network of the NIC that a node booted from, and name resolution (systemd.network(5),
nsswitch(5)).

The NIC is only known to be wired: files count that match its name, its type or everything.  A file
that matches an address, a driver or a slot is for some nodes only, and is ignored here.  networkd
takes the first file that matches, by name; of two with one name that in the first folder.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.commands import options_of
from imagebuilder.proof.reading.config import (
    TRUE,
    assignments,
    config_files,
    config_folders,
    is_false,
    is_true,
)
from imagebuilder.proof.reading.numbers import whole
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

FOLDERS = config_folders("systemd/network")
# What the initrd leaves in /run: the file that its systemd-network-generator makes from ip=, and
# the drop-in of overlays/netboot, keep-network.sh.
BOOT = "/run/systemd/network/71-default.network"
INITRD = {
    BOOT: "[Match]\nKind=!*\nType=!loopback\n[Network]\nDHCP=yes\n",
    f"{BOOT}.d/50-imagebuilder.conf": "[Network]\nKeepConfiguration=yes\n"
    "[DHCPv4]\nClientIdentifier=mac\n",
}
NICS = ("enp1s0", "eno1", "ens1", "eth0")
# What is known of the NIC, by key of [Match]; it has no kind, and a driver and path of its node.
KNOWN = {
    "Name": NICS,
    "OriginalName": NICS,
    "Type": ("ether",),
    "Kind": (),
    "Driver": ("that-of-its-node",),
    "Path": ("pci-that-of-its-node",),
    "Architecture": ("x86-64",),
    "Virtualization": ("no",),
}
FAST = 10**9  # bits per second
ETHERNET = 1500  # bytes of a frame that every switch takes
DOWN = ("down", "always-down")
# With these networkd keeps an address that the initrd got by DHCP, whatever happens.
KEEPING = (*TRUE, "dhcp", "dynamic")
NETWORKD, RESOLVED = "systemd-networkd.service", "systemd-resolved.service"
WAITING = "systemd-networkd-wait-online.service"
LINK = "make it a link to /run/systemd/resolve/stub-resolv.conf"
RESOLVER, SWITCH = "/etc/resolv.conf", "/etc/nsswitch.conf"
Sections = Mapping[str, Mapping[str, str]]


def prove_network(subject: Subject, startup: Startup) -> Iterator[Finding]:
    if NETWORKD in startup.jobs:
        yield from prove_nic(subject.root)
        yield from prove_waiting(startup)
    yield from prove_resolver(subject.root, startup)
    yield from prove_switch(subject.root)


def prove_nic(root: Root) -> Iterator[Finding]:
    """Findings about files that override the boot NIC's own, or change its address."""
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
            yield SAY.fault(what, where, hint=hint)
        yield from prove_speed(path, link)
        yield from prove_frames(path, link)
        break
    yield from prove_order(root)


def prove_order(root: Root) -> Iterator[Finding]:
    """Warnings of .link files whose settings do not count: udev takes the first file that matches
    (systemd.link(5)).
    """
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
            yield SAY.warning(what, *where, hint="put the settings of both into one file")


def prove_speed(path: str, link: Mapping[str, str]) -> Iterator[Finding]:
    """A fault of a NIC that is made slower than any server's is."""
    size = re.fullmatch(r"(\d+)([KMGT]?)", link.get("BitsPerSecond", ""))
    bits = whole(size[1]) * 1000 ** " KMGT".index(size[2] or " ") if size else FAST
    slow = [f"BitsPerSecond={link['BitsPerSecond']}"] if bits < FAST else []
    slow += ["Duplex=half"] if link.get("Duplex") == "half" else []
    if slow:
        what = f"{posixpath.basename(path)} slows down the NIC that the node booted from: "
        what += " and ".join(slow)
        where = Evidence(path, "Link", said=" ".join(slow))
        yield SAY.fault(what, where, hint="remove it: NIC and switch negotiate the speed")


def prove_frames(path: str, link: Mapping[str, str]) -> Iterator[Finding]:
    """A warning of frames that a switch may not take: small packets pass, and large ones do not."""
    size = re.fullmatch(r"(\d+)([KM]?)", said := link.get("MTUBytes", ""))
    if size and whole(size[1]) << 10 * " KM".index(size[2] or " ") > ETHERNET:
        what = (
            f"{posixpath.basename(path)} gives the NIC that the node booted from MTUBytes={said}: "
        )
        what += "if its switch takes no jumbo frames, ssh and NFS hang"
        hint = "make [Match] name only the NICs whose switch takes them"
        yield SAY.warning(what, Evidence(path, "Link", said=f"MTUBytes={said}"), hint=hint)


def prove_settings(root: Root, path: str, sections: Sections) -> Iterator[Finding]:
    """Findings about the file that networkd uses for the boot NIC, with its drop-ins."""
    link, network = sections.get("Link", {}), sections.get("Network", {})
    only = "make [Match] name only the intended NICs"
    if is_true(link.get("Unmanaged", "")):
        what = "networkd does not manage the NIC that the node booted from: its lease expires"
        where = Evidence(setter(root, path, "Unmanaged"), "Link", said="Unmanaged=yes")
        yield SAY.fault(what, where, hint=only)
    elif (policy := link.get("ActivationPolicy", "")) in DOWN:
        said = f"ActivationPolicy={policy}"
        what = f"the NIC that the node booted from loses its link: {said} takes it down"
        where = Evidence(setter(root, path, "ActivationPolicy"), "Link", said=said)
        yield SAY.fault(what, where, hint=only)
    elif is_false(dhcp := network.get("DHCP", "no")) or dhcp.lower() == "ipv6":
        what = "the NIC that the node booted from loses its DHCP lease"
        where = Evidence(setter(root, path, "DHCP"), "Network", said=f"DHCP={dhcp}")
        yield SAY.fault(what, where, hint=f"{only}, or set DHCP=yes")
    elif network.get("KeepConfiguration", "no").lower() not in KEEPING:
        what = f"{posixpath.basename(path)} is used for the NIC that the node booted from, but "
        what += "without KeepConfiguration=yes: networkd drops the address that the root is "
        what += "mounted over"
        where = Evidence(setter(root, path, "KeepConfiguration"), "Network", said=f"DHCP={dhcp}")
        hint = f"{only}, or add KeepConfiguration=yes, and ClientIdentifier=mac to [DHCPv4]"
        yield SAY.fault(what, where, hint=hint)
    elif (sections.get("DHCPv4") or sections.get("DHCP", {})).get("ClientIdentifier") != "mac":
        what = f"{posixpath.basename(path)} is used for the NIC that the node booted from, but "
        what += "without ClientIdentifier=mac: the node takes a second address"
        where = Evidence(setter(root, path, "ClientIdentifier"), "DHCPv4")
        yield SAY.warning(what, where, hint="add ClientIdentifier=mac to [DHCPv4]")


def prove_waiting(startup: Startup) -> Iterator[Finding]:
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
        yield SAY.fault(what, where, hint="use --any, and a --timeout= other than 0")
    elif not named:
        what = f"boot waits {seconds} s for {whom}: each boot of a node {lacks} takes that long"
        yield SAY.warning(what, where, hint="use --any")


def names_in(root: Root, folder: str) -> list[str]:
    """The names in a folder on a node: /run is empty but for what the initrd leaves there."""
    if folder.startswith("/run/"):
        return [posixpath.basename(path) for path in INITRD if posixpath.dirname(path) == folder]
    return root.names(folder)


def text_of(root: Root, path: str) -> str:
    return INITRD.get(path) or root.text(path)


def additions(root: Root, path: str) -> list[str]:
    """The drop-ins of a file, in the order in which they are read."""
    folders = (f"{each}/{posixpath.basename(path)}.d" for each in FOLDERS)
    return config_files(root, folders, ".conf", names_in)


def setter(root: Root, path: str, key: str) -> str:
    """The file that sets a key last: the drop-in, or the file itself."""
    for each in reversed(additions(root, path)):
        if any(name == key for _, name, _ in assignments(text_of(root, each))):
            return each
    return path


def network_files(root: Root, ending: str) -> list[str]:
    """The effective files in networkd's order, without masked ones."""
    files = config_files(root, FOLDERS, ending, names_in)
    return [path for path in files if text_of(root, path).strip()]


def read_sections(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for section, key, value in assignments(text):
        found.setdefault(section, {})[key] = value
    return found


def matches(sections: Sections, known: Mapping[str, tuple[str, ...]] = KNOWN) -> bool:
    """Whether a file applies to every interface of which something is known: by default every wired
    NIC, or one with a usual name.
    """
    match = sections.get("Match", {})
    are_known = set(match) <= set(known)
    return bool(match) and are_known and all(fits(text, known[key]) for key, text in match.items())


def fits(text: str, values: tuple[str, ...]) -> bool:
    """Whether patterns match one of some values (net_condition_test_strv() of systemd).

    A `!` before the first of them inverts all.
    """
    patterns = text.split()
    if text.startswith("!"):
        patterns = [f"!{pattern.lstrip('!')}" for pattern in patterns]
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    left = [v for v in values if not any(fnmatch.fnmatchcase(v, each) for each in excluded)]
    if wanted:
        return any(fnmatch.fnmatchcase(value, each) for value in left for each in wanted)
    return bool(left) or not values


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
            what = f"{database} entries are not looked up in {' or '.join(sorted(sources))}"
            hint = f"add {min(sources)} to that line of {SWITCH}"
            yield SAY.fault(what, Evidence(SWITCH, said=line), hint=hint)
