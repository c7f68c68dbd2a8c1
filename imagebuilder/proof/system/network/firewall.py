# SPDX-License-Identifier: Apache-2.0
"""What keeps packets from services: packet filters, nft(8) and iptables(8), which drop answers or
what comes to ports of a node; and addresses of IPv6 to listen on, where the kernel has no IPv6.

`ipv6.disable=1` removes the address family, so no socket of it can be made.  The setting
disable_ipv6 of sysctl.d only removes addresses, and a socket on :: serves IPv4.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.clusters.ranks import spans
from imagebuilder.proof.reading.config import KernelWord
from imagebuilder.proof.reading.parameters import read_sysctl
from imagebuilder.proof.reading.scripts import SiteService, services_of, site_services
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.say import some
from imagebuilder.proof.services.prove import engine_lines
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.units.start import FILES_OF_SSHD, SSHD, TELLS
from imagebuilder.root import Root

# Rules that are loaded without a word on a command line that names their file.
FILES = {
    "netfilter-persistent.service": ("/etc/iptables/rules.v4", "/etc/iptables/rules.v6"),
    "iptables.service": ("/etc/sysconfig/iptables", "/etc/iptables/iptables.rules"),
}
INCLUDE = re.compile(r"^[ \t]*include\s+[\"'](?P<path>[^\"']+)[\"']", re.MULTILINE)
COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
# A chain of incoming packets that drops what no rule accepts.
DROPS = re.compile(
    r"hook\s+input\b(?:(?!hook\s)[^{}])*\bpolicy\s+drop\b|^:INPUT\s+DROP\b", re.MULTILINE
)
# Rules that accept answers: packets of connections that exist, from a port, or all from somewhere.
ANSWERS = re.compile(
    r"\bct\s+state\b[^}]{0,300}?\bestablished\b|--(ct)?state\s+\S*\bESTABLISHED\b"
    r"|^(?!.*\bdport\b)(?=.*\baccept\b).*\b(sport|saddr|iif(name)?\s+(?!\"?lo\b))\b"
    r"|^-A (?!.*--dport)(?=.*-j ACCEPT).*(--sport|-s|-i (?!lo\b))\s",
    re.MULTILINE,
)
# Rules that accept all ports of some machines or of a NIC, or a range of ports.
OPEN = re.compile(
    r"^(?!.*\bdport\b)(?=.*\baccept\b).*\b(saddr|iif(name)?\s+(?!\"?lo\b))\b"
    r"|^-A (?!.*--dport)(?=.*-j ACCEPT).*(-s|-i (?!lo\b))\s"
    r"|^(?=.*\b(?:accept|ACCEPT)\b).*\bdports?\b[^}\n]{0,400}?\d[-:]\d",
    re.MULTILINE,
)
MOST_FILES = 50
UFW, UFW_CONFIG, UFW_DEFAULTS = "ufw.service", "/etc/ufw/ufw.conf", "/etc/default/ufw"
UFW_RULES = ("/etc/ufw/user.rules", "/etc/ufw/before.rules")
UFW_ON = re.compile(r"^[ \t]*ENABLED=[\"']?yes", re.MULTILINE | re.IGNORECASE)
UFW_DROPS = re.compile(r"^[ \t]*DEFAULT_INPUT_POLICY=[\"']?(DROP|REJECT)\b.*$", re.MULTILINE)
# Rules that ufw writes: of all packages from somewhere, and of ports of TCP.
UFW_ACCEPTS = re.compile(r"^-A ufw-user-input (-s \S+ )?-j ACCEPT$", re.MULTILINE)
UFW_OPENS = re.compile(
    r"^-A ufw-(?:user|before)-input\b(?!.*-p udp).*--dports? (\d{1,5}(?:[:,]\d{1,5})*)\b.*"
    r"-j (?:ACCEPT|ufw-user-limit(?:-accept)?)\b",
    re.MULTILINE,
)
# Ports of every node, for answers and neighbours: DHCP, multicast DNS and LLMNR.
NOT_SERVED = frozenset(("68", "546", "5353", "5355"))
# A match of ports in a rule of nft(8) or iptables(8).
MATCH = re.compile(r"\bdports?\s+(?P<ports>\{[^{}]*\}|\S+)")
PORT = re.compile(r"(?P<first>\d{1,5})(?:[-:](?P<last>\d{1,5}))?")
NAMED = {"http": "80", "https": "443", "ssh": "22", "domain": "53", "ntp": "123"}
PROTOCOL = re.compile(r"\b(tcp|udp)\b")
REFUSES = re.compile(r"\b(drop|reject|DROP|REJECT)\b")
MOST_LINE = 4096
# The ports that the kernel gives to clients, those that it never does, and its default.
RANGE, RESERVED = "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports"
DEFAULT = range(32768, 61000)
# `::`, `[::1]:80`, `:::8081`; not the address of another machine in a URL.
ADDRESS = re.compile(r"\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\](:\d+)?|::(1|ffff:[\d.]+)?|:::\d+")
OPTION = re.compile(r"--?(?=[\w.-]*?(?:host|addr|ip|listen|bind|interface))[\w.-]+")
# Files of servers that end if they cannot listen on one of their addresses.
LINE = re.compile(
    r"^[ \t]*(?P<said>(?:listen|bind)[ \t]+(?P<where>\[[0-9a-f:]*\][^\s;]*|:::\d+)[^;\n]*)",
    re.MULTILINE | re.IGNORECASE,
)
LISTENING = {
    "nginx": ("/etc/nginx/nginx.conf", "/etc/nginx/conf.d/*.conf", "/etc/nginx/sites-enabled/*"),
    "haproxy": ("/etc/haproxy/haproxy.cfg",),
    "apache2": ("/etc/apache2/ports.conf", "/etc/apache2/sites-enabled/*"),
    "httpd": ("/etc/httpd/conf/httpd.conf", "/etc/httpd/conf.d/*.conf"),
}
HINT = "listen on 0.0.0.0, or set net.ipv6.conf.all.disable_ipv6 instead of the parameter"


def prove_firewall(subject: Subject) -> Findings:
    yield from prove_ufw(subject.root, subject.startup)
    together = next(computing_together(subject), None)
    for name, path, rules in find_filters(subject.root, subject.startup):
        drops = DROPS.search(rules)
        if drops is None:
            continue
        where = Evidence(path, said=" ".join(drops[0].split()))
        if not ANSWERS.search(rules):
            what = f"{name} drops the answers to the node's own requests: NFS (its root), DHCP, "
            what += f"DNS and NTP ({path} has no rule for established connections)"
            hint = "accept them before everything else: `ct state established,related accept`"
            yield fault(what, where, hint=hint)
            continue
        if OPEN.search(rules):
            continue
        if not opens_ssh(rules, ssh_ports(subject.root)):
            what = f"{name} drops what comes to ssh: no rule of {path} accepts its port, so that "
            what += "nobody can log in"
            yield warning(what, where, hint="accept it: `tcp dport 22 accept`")
        if together:
            what = f"{name} drops what the processes of a job on other nodes send: {together.name} "
            what += "starts programs that connect to each other on any port"
            hint = "accept everything from the nodes' network: `ip saddr 192.168.1.0/24 accept`"
            yield warning(what, where, together.evidence, hint=hint)


def find_filters(root: Root, startup: Startup) -> Iterator[tuple[str, str, str]]:
    """The units that load rules at boot, each file that they load, and its rules."""
    for name, unit in startup.booting():
        words = [word for commands in unit.commands.get("ExecStart", ()) for word in commands]
        programs = {posixpath.basename(word) for word in words}
        paths = list(FILES.get(name, ()))
        if programs & {"nft", "iptables-restore", "ip6tables-restore"}:
            paths += [word for word in words if root.is_file(word) and "/etc/" in word]
        yield from ((name, path, read_rules(root, path)) for path in paths)


def computing_together(subject: Subject) -> Iterator[SiteService]:
    """Services whose programs connect to those of other nodes on ports that nobody chose."""
    yield from services_of(subject, "slurmd")
    yield from (service for service in site_services(subject) if spans(service))


def prove_ufw(root: Root, startup: Startup) -> Findings:
    """A fault of ufw(8) if it drops what comes in, and lets nobody in by ssh."""
    found = read_ufw(root, startup)
    if found and not opens(found[1], ssh_ports(root)):
        what = (
            f"ufw drops what comes in, and no rule of {UFW_RULES[0]} lets ssh in: nobody can log in"
        )
        yield fault(what, found[0], hint="run ufw allow OpenSSH when the image is built")


def read_ufw(root: Root, startup: Startup) -> tuple[Evidence, str] | None:
    """The rules of ufw if it drops what none of them accepts, and what says so."""
    drops = UFW_DROPS.search(root.text(UFW_DEFAULTS))
    is_on = UFW_ON.search(root.text(UFW_CONFIG)) and UFW in startup.jobs
    rules = "".join(map(root.text, UFW_RULES))
    if not drops or not is_on or UFW_ACCEPTS.search(rules):
        return None
    return Evidence(UFW_DEFAULTS, said=drops[0].strip()), rules


def ssh_ports(root: Root) -> frozenset[str]:
    """The ports of sshd, as its files say them."""
    texts = map(root.text, root.glob(*FILES_OF_SSHD))
    found = {port for text in texts for port in SSHD.findall(text)}
    return frozenset(found or {"22"})


def opens(rules: str, ports: frozenset[str]) -> bool:
    """Whether a rule accepts one of these ports of TCP, alone, in a list or in a range."""
    words = [word for listed in UFW_OPENS.findall(rules) for word in listed.split(",")]
    return any(holds(word, whole(port)) for word in words for port in ports)


def opens_ssh(rules: str, ports: frozenset[str]) -> bool:
    """Whether a rule accepts a port of ssh, or ports of which this file does not say which."""
    for line in rules.splitlines():
        words = set(re.split(r"[^\w@$-]+", line))
        is_port = {"dport", "--dport", "--dports", "-dport", "-dports"} & words
        if is_port and (ports | {"ssh"}) & words | {w for w in words if w[:1] in "@$" and w}:
            return True
    return "vmap" in rules


def read_rules(root: Root, path: str) -> str:
    """The rules of a file and of those that it includes, without comments."""
    todo, seen, text = [path], set[str](), ""
    while todo and len(seen) < MOST_FILES:
        place = todo.pop()
        if place not in seen:
            seen.add(place)
            own = COMMENT.sub("", root.text(place))
            text += f"{own}\n"
            for match in INCLUDE.finditer(own):
                pattern = posixpath.join(posixpath.dirname(place), match["path"])
                todo += root.glob(pattern) if "*" in pattern else [pattern]
    return text


def served_ports(subject: Subject) -> list[str]:
    """What the profile declares that other machines use, such as 8080/tcp."""
    ssh = ssh_ports(subject.root)
    declared = subject.image.listens or ()
    return [each for each in declared if each.partition("/")[0] not in NOT_SERVED | ssh]


def prove_dropped_ports(subject: Subject) -> Findings:
    """Warnings of filters that drop what comes to a declared port, one for each file."""
    served = served_ports(subject)
    yield from prove_ufw_ports(subject, served)
    for name, path, rules in find_filters(subject.root, subject.startup) if served else ():
        drops = DROPS.search(rules)
        # The question of answers comes first, and what is open to a network is open on purpose.
        if not drops or not ANSWERS.search(rules) or OPEN.search(rules) or "vmap" in rules:
            continue
        closed = [each for each in served if not is_opened(rules, *each.split("/"))]
        if closed:
            what = f"{name} drops what other machines send to {some(closed)}, which the profile "
            what += f"declares: no rule of {path} accepts it"
            said = " ".join(drops[0].split())
            hint = f"accept it: `{closed[0].partition('/')[2]} dport {closed[0].partition('/')[0]} "
            hint += "accept`"
            yield warning(what, Evidence(path, said=said), hint=hint)


def prove_ufw_ports(subject: Subject, served: list[str]) -> Findings:
    found = read_ufw(subject.root, subject.startup)
    closed = [each for each in served if each.endswith("/tcp") and found
              and not opens(found[1], frozenset((each.partition("/")[0],)))]  # fmt: skip
    if found and closed:
        what = f"ufw drops what other machines send to {some(closed)}, which the profile declares: "
        what += f"no rule of {UFW_RULES[0]} accepts it"
        yield warning(what, found[0], hint=f"run ufw allow {closed[0]} when the image is built")


def is_opened(rules: str, port: str, protocol: str) -> bool:
    """Whether a rule accepts a port, or ports of which this file does not say which."""
    for line in rules_of(rules):
        for match in MATCH.finditer(line):
            before = re.split("[;{}]", line[: match.start()])[-1]
            protocols = set(PROTOCOL.findall(before))
            after = line[match.end() :].partition(";")[0]
            if REFUSES.search(after) or (protocols and protocol not in protocols):
                continue
            words = re.split(r"[\s,]+", match["ports"].strip("{} \t\n"))
            if any(holds(NAMED.get(word, word), whole(port)) for word in words if word):
                return True
    return False


def rules_of(rules: str) -> Iterator[str]:
    """The lines, with sets that go over several lines on one."""
    open_set = ""
    for line in rules.splitlines():
        open_set += f"{line} "
        _, of_ports, last = open_set.rpartition("dport")
        is_open = of_ports and last.rfind("{") > last.rfind("}") and len(open_set) < MOST_LINE
        if not is_open:
            yield open_set[:MOST_LINE]
            open_set = ""
    yield open_set[:MOST_LINE]


def holds(word: str, port: int) -> bool:
    """Whether a port is one of a word of a rule: a number, a range, or what only nft knows."""
    found = PORT.fullmatch(word)
    if found is None:
        return True
    return int(found["first"]) <= port <= int(found["last"] or found["first"])


def prove_client_ports(subject: Subject) -> Findings:
    """A warning if the kernel may give a declared port to a client of the node's own."""
    settings = read_sysctl(subject)
    one = settings.get(RANGE)
    numbers = [whole(word) for word in one.value.split()] if one else []
    if one is None or len(numbers) != 2 or min(numbers) < 0:
        return
    reserved = settings[RESERVED].value if RESERVED in settings else ""
    kept = [word for word in re.split(r"[\s,]+", reserved) if PORT.fullmatch(word)]
    taken = []
    for each in served_ports(subject):
        port = whole(each.partition("/")[0])
        is_given = numbers[0] <= port <= numbers[1] and port not in DEFAULT
        if is_given and not any(holds(word, port) for word in kept):
            taken.append(each)
    if taken:
        what = f"{RANGE} = {' '.join(one.value.split())} lets the kernel give {some(taken)} to a "
        what += "connection of the node's own: a server of that port cannot start again meanwhile"
        hint = f"reserve it: {RESERVED} = {','.join(each.partition('/')[0] for each in taken)}"
        yield warning(what, one.where, hint=hint)


def prove_families(subject: Subject) -> Findings:
    words = [word for word in subject.words if word.key == "ipv6.disable"]
    if not words or words[-1].value != "1":
        return
    word = words[-1]
    engines = set()
    for unit, kind, line in engine_lines(subject):
        engines.add(unit.name)
        address = line.value(kind.model.settings, "address")
        if address and ADDRESS.fullmatch(address.value.strip()):
            what = text_of(unit.name, address.value.strip(), word)
            yield fault(what, address.evidence, word.evidence, hint=HINT)
    yield from prove_services(subject, word, engines)
    yield from prove_sockets(subject.startup, word)
    for program, patterns in LISTENING.items():
        for service in [*services_of(subject, program)][:1]:
            for path in subject.root.glob(*patterns):
                if found := LINE.search(subject.root.text(path)):
                    where = Evidence(path, said=found["said"].strip())
                    what = text_of(service.name, found["where"], word)
                    yield warning(what, where, word.evidence, hint=HINT)


def text_of(unit: str, address: str, word: KernelWord) -> str:
    return f"{unit} does not start: it listens on {address}, but {word.text} removes IPv6"


def prove_services(subject: Subject, word: KernelWord, engines: set[str]) -> Findings:
    for service in site_services(subject):
        if service.name in engines:
            continue
        told = [
            (each.rpartition("=")[2], service.evidence)
            for before, each in zip(("", *service.words), service.words, strict=False)
            if OPTION.fullmatch(each.partition("=")[0] if "=" in each else before)
        ]
        told += [
            (variable.value, variable.evidence(name))
            for name, variable in service.environment.items()
            if TELLS.search(name)
        ]
        for value, where in told:
            if ADDRESS.fullmatch(value):
                yield warning(text_of(service.name, value, word), where, word.evidence, hint=HINT)
                break


def prove_sockets(startup: Startup, word: KernelWord) -> Findings:
    for name, unit in startup.booting():
        listed = unit.every("ListenStream") if name.endswith(".socket") else ()
        for value in listed:
            if ADDRESS.fullmatch(value):
                where = Evidence((unit.paths or (name,))[-1], said=f"ListenStream={value}")
                yield warning(text_of(name, value, word), where, word.evidence, hint=HINT)
