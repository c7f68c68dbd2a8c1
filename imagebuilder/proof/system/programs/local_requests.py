# SPDX-License-Identifier: Apache-2.0
"""Requests of a site's scripts to their own node: through a proxy, or to a port that nothing has.

A health check that gets no answer restarts what it checks, although that works.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imagebuilder.image.proof import Findings, warning
from imagebuilder.proof.reading.environment import Variable, environment_of
from imagebuilder.proof.reading.scripts import UnitCommand, site_files, unit_commands
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.reading.texts import is_loopback
from imagebuilder.proof.services.prove import engine_lines
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import EngineKind
from imagebuilder.root import Root

URL = re.compile(
    r"(?:(?P<scheme>https?)://)?(?:[^@/\s]*@)?(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+)"
    r"(?::(?P<port>\d{1,5}))?(?P<path>/\S*)?"
)
PORTS = {"http": "80", "https": "443"}
# Where each client looks for a proxy and for hosts without one; wget's names are small letters only
# (wget(1), curl(1), "Environment").
PROXIES = {
    ("wget", "http"): ("http_proxy",),
    ("wget", "https"): ("https_proxy",),
    ("curl", "http"): ("http_proxy", "all_proxy", "ALL_PROXY"),
    ("curl", "https"): ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
}
DIRECT = {"wget": ("no_proxy",), "curl": ("no_proxy", "NO_PROXY")}
# In a script or among a command's words, they say that the site has thought of the proxy.
HANDLES_PROXY = re.compile(
    r"(?i)no[_-]?proxy|_proxy=|unset\b.*proxy|--proxy\b|--preproxy\b|use_proxy"
)
# Options of curl with a proxy as their value, which is not asked for itself.
PROXY_OPTIONS = frozenset(("-x", "--proxy", "--preproxy", "--socks5", "--socks5-hostname"))
CURLRC = ("/etc/curlrc", "/root/.curlrc")
SYSTEMCTL, RESTARTS = "systemctl", ("restart", "try-restart", "stop", "kill", "start")
# Packet filters and scrapers name ports that this node need not have.
OTHER_FILES = re.compile(
    r".*(\.nft|nftables|iptables|firewall|/ufw/|/fail2ban/|prometheus|/systemd/).*"
)
PLACES = ("/etc/*", "/etc/*/*", "/etc/*/*/*")
MOST_BYTES = 256 << 10


@dataclass(frozen=True)
class LocalRequest:
    """A request to the node itself, by curl or wget."""

    command: UnitCommand
    url: str
    scheme: str
    host: str
    port: str


def prove_requests(subject: Subject) -> Findings:
    """Warnings: the answer may be expected to fail."""
    told: set[tuple[str, str]] = set()
    commands = unit_commands(subject)
    engines = dict(engine_ports(subject))
    for request in local_requests(commands):
        key = (request.command.said, request.url)
        if key not in told:
            acts = frozenset(acted_on(request.command.unit.name, commands)) & engines.keys()
            found = [
                *prove_proxy(subject, request),
                *prove_port(subject, request, acts, engines),
            ]
            told |= {key for _ in found}
            yield from found


def local_requests(commands: Sequence[UnitCommand]) -> Iterator[LocalRequest]:
    for command in commands:
        if command.program not in DIRECT:
            continue
        before = ""
        for word in command.words[1:]:
            match = URL.fullmatch(word)
            is_named = bool(match) and before not in PROXY_OPTIONS
            if match and is_named and is_loopback(match["host"].strip("[]")):
                scheme = match["scheme"] or "http"
                port = match["port"] or PORTS[scheme]
                yield LocalRequest(command, word, scheme, match["host"].strip("[]"), port)
            before = word


def prove_proxy(subject: Subject, request: LocalRequest) -> Findings:
    """A warning of a request to the loopback address that goes to a proxy, which asks itself."""
    command = request.command
    if any(map(HANDLES_PROXY.search, command.texts)) or is_configured(
        subject.root, command.program
    ):
        return
    environment = environment_of(subject, command.unit)
    names = PROXIES[(command.program, request.scheme)]
    name = next((n for n in names if n in environment and environment[n].value), "")
    direct = next((environment[n] for n in DIRECT[command.program] if n in environment), None)
    if not name or (direct and is_direct(request.host, direct, command.program)):
        return
    proxy = environment[name]
    what = f"{command.said} asks {request.url} through the proxy of {name}, whose own loopback "
    what += f"address that is: no_proxy of {command.unit.name} "
    what += f"does not name {request.host} ({direct.value})" if direct else "is not set"
    hint = f"set no_proxy={request.host} where {name} is set, and name localhost and ::1 too"
    where = [proxy.evidence(name), command.evidence]
    yield warning(what, *where, hint=hint)


def is_configured(root: Root, program: str) -> bool:
    """Whether the program's own files say something about proxies."""
    files = ("/etc/wgetrc",) if program == "wget" else CURLRC
    lines = (line.strip() for path in files for line in root.text(path).splitlines())
    return any("proxy" in line.lower() and not line.startswith("#") for line in lines)


def is_direct(host: str, variable: Variable, program: str) -> bool:
    """Whether a list without proxy has a host: its name, a domain, for curl a network."""
    for entry in (each.strip() for each in re.split(r"[,\s]+", variable.value)):
        name = entry.strip("[]").lstrip(".").lower()
        if name and (host.lower() == name or host.lower().endswith(f".{name}")):
            return True
        if program == "curl" and (entry == "*" or in_network(host, entry)):
            return True
    return False


def in_network(host: str, network: str) -> bool:
    try:
        return "/" in network and ipaddress.ip_address(host) in ipaddress.ip_network(network)
    except (ValueError, TypeError):
        return False


def engine_ports(subject: Subject) -> Iterator[tuple[str, tuple[str, EngineKind]]]:
    """The services of engines, the port of each, and its engine."""
    for unit, kind, line in engine_lines(subject):
        if port := line.value(kind.model.settings, "port"):
            yield unit.name, (port.value, kind)


def prove_port(
    subject: Subject,
    request: LocalRequest,
    acts: frozenset[str],
    engines: dict[str, tuple[str, EngineKind]],
) -> Findings:
    """A warning of a request to a port of which nothing in the image tells, if its unit acts on
    (`acts`) an engine with another port, or the port is the usual one of an engine that no unit
    starts.
    """
    port, command = request.port, request.command
    if not engines or port in {known for known, _ in engines.values()}:
        return
    unit = min(acts, default="")
    usual = [kind for kind in subject.engines.values() if port in usual_ports(kind)]
    if any(is_started(subject.startup, kind) for kind in usual):
        return
    if not (unit or usual) or is_mentioned(subject, port, command):
        return
    name = unit or next(iter(engines))
    what = f"{command.said} asks {request.url}, but nothing in the image listens on port {port}"
    what += f" ({usual[0].title}'s by default)" if usual else ""
    what += f": {name} listens on {engines[name][0]}"
    what += ", and the script restarts or stops it although it works" if unit else ""
    yield warning(what, command.evidence, hint=f"ask port {engines[name][0]}")


def acted_on(unit: str, commands: Sequence[UnitCommand]) -> Iterator[str]:
    """The units that the commands of a unit restart or stop."""
    for other in commands:
        if (
            other.unit.name == unit
            and other.program == SYSTEMCTL
            and any(w in RESTARTS for w in other.words)
        ):
            for word in other.words[1:]:
                yield word if "." in word else f"{word}.service"


def usual_ports(kind: EngineKind) -> list[str]:
    return [each.default for each in kind.model.settings if each.means == "port" and each.default]


def is_started(startup: Startup, kind: EngineKind) -> bool:
    """Whether the name of an engine is in a command line of a unit that starts."""
    lines = (words for unit in startup.starting() for words in unit.lines)
    return any(kind.name in word for words in lines for word in words)


def is_mentioned(subject: Subject, port: str, command: UnitCommand) -> bool:
    """Whether a unit, a variable of one or a setting of the site names a port."""
    number = re.compile(rf"(?<![\d.]){port}(?![\d.]*\d)")
    if any(number.search(each) for each in subject.image.listens or ()):
        return True
    for unit in {unit.name: unit for unit in subject.startup.units.values()}.values():
        lines = [" ".join(words) for words in unit.lines]
        lines += [value for key in ("ListenStream", "Listen") for value in unit.every(key)]
        is_same = unit.name == command.unit.name
        if not is_same and unit.name in subject.startup.jobs and any(map(number.search, lines)):
            return True
    for unit in subject.startup.starting():
        values = (v.value for v in environment_of(subject, unit).values())
        if any(map(number.search, values)):
            return True
    beside = {command.script.path if command.script else "", *command.unit.paths}
    for path in site_files(subject, *PLACES):
        host = subject.root.host(path)
        if path in beside or OTHER_FILES.fullmatch(path) or not host or not host.is_file():
            continue
        if host.stat().st_size <= MOST_BYTES and number.search(subject.root.text(path)):
            return True
    return False
