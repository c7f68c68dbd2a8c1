# SPDX-License-Identifier: Apache-2.0
"""Sockets that systemd opens to the network and that no overlay lists under `listens:`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.systemd import Startup

KINDS = {"ListenStream": "tcp", "ListenDatagram": "udp"}
# An address with a port, as systemd prints it; a path is no port.
LISTENS = re.compile(r"(?P<address>\[[^\]]*\]|[0-9.]*):?(?P<port>\d+)(\s.*)?")
LOOPBACK = ("127.", "[::1]")


def find_ports(subject: Subject, startup: Startup | None) -> Iterator[Privilege]:
    """None for an image that is older than `listens:`."""
    if startup is None or subject.image.listens is None:
        return
    for name in sorted(startup.jobs & startup.units.keys()):
        unit = startup.units[name]
        if not name.endswith(".socket"):
            continue
        for key, protocol in KINDS.items():
            for value in unit.every(key):
                match = LISTENS.fullmatch(value)
                if match is None or match["address"].startswith(LOOPBACK):
                    continue
                port = f"{match['port']}/{protocol}"
                if port not in subject.image.listens:
                    path = unit.paths[0] if unit.paths else name
                    gains = f"{name} listens on {port}, which no overlay lists under `listens:`"
                    yield Privilege(Opening.NEVER, port, path, gains)
