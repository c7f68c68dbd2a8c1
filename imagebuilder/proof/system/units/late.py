# SPDX-License-Identifier: Apache-2.0
"""Settings of sysctl.d(5) that belong to a module which nothing loads before they are applied."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Finding
from imagebuilder.proof.reading.interpreters import texts_of
from imagebuilder.proof.reading.modprobe import requested
from imagebuilder.proof.reading.modules import plain
from imagebuilder.proof.reading.site import services_of
from imagebuilder.proof.reading.sysctl import read_sysctl
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# Prefixes of settings, and the module that has them.
MODULES = (
    ("net.bridge.bridge-nf-", "br_netfilter"),
    ("net.netfilter.nf_conntrack_", "nf_conntrack"),
    ("net.nf_conntrack_", "nf_conntrack"),
    ("net.ipv4.vs.", "ip_vs"),
    ("sunrpc.", "sunrpc"),
)
# They load br_netfilter and nf_conntrack by themselves.
LOADING = ("dockerd", "k3s", "rke2", "microk8s")


def prove_late_settings(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings about settings that do not exist when they are applied, and are skipped."""
    settings = read_sysctl(subject)
    for module in dict.fromkeys(module for _, module in MODULES):
        begins = tuple(begin for begin, each in MODULES if each == module)
        found = {name: one for name, one in settings.items() if name.startswith(begins)}
        if found and not is_loaded(subject, startup, module):
            first, one = next(iter(found.items()))
            what = f"{first} is not set: it belongs to the module {module}, which nothing loads at "
            what += "boot"
            hint = f"add {module} to a file in /etc/modules-load.d"
            yield SAY.warning(what, one.where, hint=hint)


def is_loaded(subject: Subject, startup: Startup, module: str) -> bool:
    kernel = subject.drivers
    if not kernel.by_name or plain(module) in kernel.builtin:
        return True
    if plain(module) in (plain(name) for name, _ in requested(subject)):
        return True
    if any(True for program in LOADING for _ in services_of(subject, startup, program)):
        return True
    said = re.compile(rf"\b{module}\b")
    commands = (words for unit in startup.starting() for all_ in unit.commands.values()
                for words in all_)  # fmt: skip
    return any(said.search(text) for words in commands for text in texts_of(subject.root, words))
