# SPDX-License-Identifier: Apache-2.0
"""DNS over TLS (resolved.conf(5)): a strict resolver needs servers that speak it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import is_false, is_true
from imagebuilder.proof.reading.systemd import Startup, last_lines, read_config
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.network.nic import FOLDERS, RESOLVED, RESOLVER
from imagebuilder.root import Root

# Lines of .network files and their drop-ins that give an interface its own choice.
OF_INTERFACE = re.compile(r"^[ \t]*(DNSOverTLS\s*=\s*(no|opportunistic)|DNS\s*=.*#)", re.MULTILINE)


def prove_stub(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """A fault if programs ask the resolver of the node, which does not listen."""
    line = last_lines(subject, "systemd/resolved.conf").get("DNSStubListener")
    link = subject.root.link_at(RESOLVER) or ""
    stub = posixpath.basename(link) == "stub-resolv.conf"
    if line and is_false(line.value) and stub and RESOLVED in startup.jobs:
        what = f"{RESOLVER} leads to the stub of {RESOLVED}, which does not listen: no name is "
        what += "resolved"
        hint = "remove DNSStubListener=, or link to /run/systemd/resolve/resolv.conf"
        yield SAY.fault(what, line.evidence, Evidence(RESOLVER, said=link), hint=hint)


def prove_tls(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """A fault if only the servers of DHCP may be asked, of which nobody knows that they speak TLS;
    a warning if no server has a name or a public address, for which there are certificates.
    """
    lines = list(read_config(subject, "systemd/resolved.conf"))
    strict = next((line for line in reversed(lines) if line.key == "DNSOverTLS"), None)
    if strict is None or not is_true(strict.value) or RESOLVED not in startup.jobs:
        return
    servers: list[str] = []
    for line in lines:
        if line.key == "DNS":
            servers = servers + line.value.split() if line.value else []
    if any(map(has_certificate, servers)) or any(
        OF_INTERFACE.search(subject.root.text(path)) for path in interface_files(subject.root)
    ):
        return
    said = f"DNSOverTLS={strict.value}"
    if servers:
        what = f"{said}, but {servers[0]} has no host name: it may have no valid certificate"
        hint = f"append the name of the certificate: DNS={servers[0]}#HOST"
        yield SAY.warning(what, strict.evidence, hint=hint)
        return
    what = f"{said}, but no DNS= names a server that speaks it: the servers of DHCP are asked over "
    what += "TLS only, and no name is resolved"
    hint = "use DNSOverTLS=opportunistic, or name a server: DNS=ADDRESS#HOST"
    yield SAY.fault(what, strict.evidence, hint=hint)


def has_certificate(server: str) -> bool:
    """Whether `ADDRESS[:PORT][%INTERFACE][#HOST]` has a host name or a public address."""
    address, _, host = server.partition("#")
    address = address.partition("%")[0]
    for each in (address, address.rpartition(":")[0].strip("[]")):
        if found := parsed(each):
            return bool(host) or found.is_global
    return bool(host)


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def interface_files(root: Root) -> Iterator[str]:
    for folder in FOLDERS:
        yield from root.glob(f"{folder}/*.network")
        yield from root.glob(f"{folder}/*.network.d/*.conf")
