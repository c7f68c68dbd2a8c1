# SPDX-License-Identifier: Apache-2.0
"""Services that listen on an address which one node has, in the image of all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import config_folders
from imagebuilder.proof.reading.environment import environment_of
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.services import SAY
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

HOSTS = ("HOST", "ADDRESS", "LISTEN")
NETWORKS = config_folders("systemd/network")


def prove_one_address(
    root: Root, unit: str, name: str, address: str, where: Evidence
) -> Iterator[Finding]:
    """A warning about listening on an address that one node has, in the image of all."""
    try:
        number = ip_address(address.strip("[]"))
    except ValueError:
        return
    if number.is_loopback or number.is_unspecified or number.is_multicast:
        return
    files = (path for folder in NETWORKS for path in root.glob(f"{folder}/*.network"))
    given = re.compile(rf"^Address={re.escape(str(number))}\b", re.MULTILINE)
    if not any(given.search(root.text(path)) for path in files):
        what = f"{unit} listens on {number} ({name}), the address of one node: on all others it "
        what += "does not start"
        hint = "listen on every address, and limit access with a firewall or IPAddressAllow="
        yield SAY.warning(what, where, hint=hint)


def prove_hosts(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings of PREFIX_HOST beside the PREFIX_PORT that an overlay declares as listened on."""
    listens = subject.image.listens or ()
    for unit in startup.starting():
        if not listens or all(path in subject.shipped for path in unit.paths):
            continue
        environment = environment_of(subject, unit)
        for name, variable in environment.items():
            prefix, _, last = name.rpartition("_")
            port = environment.get(f"{prefix}_PORT") if last in HOSTS else None
            if port and f"{port.value}/tcp" in listens:
                where = variable.evidence(name)
                yield from prove_one_address(subject.root, unit.name, name, variable.value, where)
