# SPDX-License-Identifier: Apache-2.0
"""Addresses of IPv6 to listen on, where the kernel is told to have no IPv6.

`ipv6.disable=1` removes the address family, so no socket of it can be made.  The setting
disable_ipv6 of sysctl.d only removes addresses, and a socket on :: serves IPv4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.parameters import KernelWord, kernel_words
from imagebuilder.proof.reading.site import services_of, site_services
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.services.prove import engine_lines
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.units.start import TELLS

DISABLE = "ipv6.disable"
# `::`, `[::1]:80`, `:::8081`; not the address of another machine in a URL.
ADDRESS = re.compile(r"\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\](:\d+)?|::(1|ffff:[\d.]+)?|:::\d+")
OPTION = re.compile(r"--?(?=[\w.-]*?(?:host|addr|ip|listen|bind|interface))[\w.-]+")
# Files of servers that end if they cannot listen on one of their addresses.
LINE = re.compile(
    r"^[ \t]*(?P<said>(?:listen|bind)[ \t]+(?P<where>\[[0-9a-f:]*\][^\s;]*|:::\d+)[^;\n]*)",
    re.MULTILINE | re.IGNORECASE,
)
FILES = {
    "nginx": ("/etc/nginx/nginx.conf", "/etc/nginx/conf.d/*.conf", "/etc/nginx/sites-enabled/*"),
    "haproxy": ("/etc/haproxy/haproxy.cfg",),
    "apache2": ("/etc/apache2/ports.conf", "/etc/apache2/sites-enabled/*"),
    "httpd": ("/etc/httpd/conf/httpd.conf", "/etc/httpd/conf.d/*.conf"),
}
HINT = "listen on 0.0.0.0, or set net.ipv6.conf.all.disable_ipv6 instead of the parameter"


def prove_families(subject: Subject) -> Iterator[Finding]:
    """Faults of engines, and warnings of other services."""
    words = [word for word in kernel_words(subject.cmdline) if word.key == DISABLE]
    if not words or words[-1].value != "1":
        return
    word = words[-1]
    engines = set()
    for unit, kind, line in engine_lines(subject):
        engines.add(unit.name)
        address = line.value(kind.model.settings, "address")
        if address and ADDRESS.fullmatch(address.value.strip()):
            what = text_of(unit.name, address.value.strip(), word)
            yield SAY.fault(what, address.evidence, word.evidence, hint=HINT)
    yield from prove_services(subject, word, engines)
    yield from prove_sockets(subject.startup, word)
    for program, patterns in FILES.items():
        for service in [*services_of(subject, program)][:1]:
            for path in subject.root.glob(*patterns):
                if found := LINE.search(subject.root.text(path)):
                    where = Evidence(path, said=found["said"].strip())
                    what = text_of(service.name, found["where"], word)
                    yield SAY.warning(what, where, word.evidence, hint=HINT)


def text_of(unit: str, address: str, word: KernelWord) -> str:
    return f"{unit} does not start: it listens on {address}, but {word.text} removes IPv6"


def prove_services(subject: Subject, word: KernelWord, engines: set[str]) -> Iterator[Finding]:
    """Of a site's services that name such an address in an option or a variable."""
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
                what = text_of(service.name, value, word)
                yield SAY.warning(what, where, word.evidence, hint=HINT)
                break


def prove_sockets(startup: Startup, word: KernelWord) -> Iterator[Finding]:
    for name, unit in startup.booting():
        listed = unit.every("ListenStream") if name.endswith(".socket") else ()
        for value in listed:
            if ADDRESS.fullmatch(value):
                where = Evidence((unit.paths or (name,))[-1], said=f"ListenStream={value}")
                what = text_of(name, value, word)
                yield SAY.warning(what, where, word.evidence, hint=HINT)
