# SPDX-License-Identifier: Apache-2.0
"""Declared ports that other machines do not reach, or that a client of the node may take first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.numbers import whole
from imagebuilder.proof.reading.sysctl import read_sysctl
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.network.firewall import (
    ANSWERS,
    DROPS,
    OPEN,
    UFW_RULES,
    find_filters,
    opens,
    read_ufw,
    ssh_ports,
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


def served_ports(subject: Subject) -> list[str]:
    """What the profile declares that other machines use, such as 8080/tcp."""
    ssh = ssh_ports(subject.root)
    declared = subject.image.listens or ()
    return [each for each in declared if each.partition("/")[0] not in NOT_SERVED | ssh]


def prove_dropped_ports(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings of filters that drop what comes to a declared port, one for each file."""
    served = served_ports(subject)
    yield from prove_ufw_ports(subject, startup, served)
    for name, path, rules in find_filters(subject.root, startup) if served else ():
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
            yield SAY.warning(what, Evidence(path, said=said), hint=hint)


def prove_ufw_ports(subject: Subject, startup: Startup, served: list[str]) -> Iterator[Finding]:
    found = read_ufw(subject.root, startup)
    closed = [each for each in served if each.endswith("/tcp") and found
              and not opens(found[1], frozenset((each.partition("/")[0],)))]  # fmt: skip
    if found and closed:
        what = f"ufw drops what other machines send to {some(closed)}, which the profile declares: "
        what += f"no rule of {UFW_RULES[0]} accepts it"
        hint = f"run ufw allow {closed[0]} when the image is built"
        yield SAY.warning(what, found[0], hint=hint)


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


def prove_client_ports(subject: Subject) -> Iterator[Finding]:
    """A warning if the kernel may give a declared port to a connection of the node's own: a server
    that starts again cannot listen on it then.  Ports of the kernel's default range are no matter.
    """
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
        yield SAY.warning(what, one.where, hint=hint)
