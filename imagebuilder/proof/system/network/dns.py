# SPDX-License-Identifier: Apache-2.0
"""Names: /etc/resolv.conf, nsswitch.conf(5), and DNS over TLS (resolved.conf(5)).

A strict resolver needs servers that speak TLS.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.addresses import parse_address
from imagebuilder.proof.reading.config import is_false, is_true
from imagebuilder.proof.reading.networkd import FOLDERS, RESOLVED
from imagebuilder.proof.reading.systemd import Startup, last_lines, read_config
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

# Lines of .network files and their drop-ins that give an interface its own choice.
OF_INTERFACE = re.compile(r"^[ \t]*(DNSOverTLS\s*=\s*(no|opportunistic)|DNS\s*=.*#)", re.MULTILINE)
LINK = "make it a link to /run/systemd/resolve/stub-resolv.conf"
RESOLVER, SWITCH = "/etc/resolv.conf", "/etc/nsswitch.conf"


def prove_stub(subject: Subject) -> Iterator[Finding]:
    """A fault if programs ask the resolver of the node, which does not listen."""
    line = last_lines(subject, "systemd/resolved.conf").get("DNSStubListener")
    link = subject.root.link_at(RESOLVER) or ""
    stub = posixpath.basename(link) == "stub-resolv.conf"
    if line and is_false(line.value) and stub and RESOLVED in subject.startup.jobs:
        what = f"{RESOLVER} leads to the stub of {RESOLVED}, which does not listen: no name is "
        what += "resolved"
        hint = "remove DNSStubListener=, or link to /run/systemd/resolve/resolv.conf"
        yield SAY.fault(what, line.evidence, Evidence(RESOLVER, said=link), hint=hint)


def prove_tls(subject: Subject) -> Iterator[Finding]:
    """A fault if only the servers of DHCP may be asked, of which nobody knows that they speak TLS;
    a warning if no server has a name or a public address, for which there are certificates.
    """
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
        if found := parse_address(each):
            return bool(host) or found.is_global
    return bool(host)


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
