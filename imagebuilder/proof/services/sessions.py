# SPDX-License-Identifier: Apache-2.0
"""Variables of logins, and of services that no overlay declares, which replace or hide devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import Variable, environment_of, runtime_files
from imagebuilder.proof.reading.quotes import unquoted
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.services.devices import prove_emulation, prove_interfaces, prove_selection
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# Read by pam_env(8), by shells, and by systemd for the services of a user.
FILES = ("/etc/environment", "/etc/profile")
FOLDERS = ("/usr/lib/environment.d/*.conf", "/etc/environment.d/*.conf", "/etc/profile.d/*.sh")
ASSIGNMENT = re.compile(r"^[ \t]*(?:export\s+)?(?P<name>\w+)=(?P<value>.*)$", re.MULTILINE)
WHO = "everybody who logs in"
EVERY_PROGRAM = "every program that reads that file"
NPU, XRT = "amdxdna", "xrt"


def prove_sessions(subject: Subject) -> Iterator[Finding]:
    """Faults and warnings."""
    environment = session_environment(subject.root)
    backends = {b for engine in subject.expectations.engines for b in engine.backends}
    backends |= {XRT} if has_npu(subject) else set()
    yield from prove_emulation(WHO, sorted(backends), environment)
    yield from prove_selection(WHO, sorted(backends), environment)
    yield from prove_interfaces(subject, WHO, environment, uses=False)
    for settings in runtime_files(subject.root):
        yield from prove_interfaces(subject, EVERY_PROGRAM, settings, uses=False)


def prove_units(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Faults of services whose variables replace the NPU, each variable of a file once.

    The NPU is not declared for a service: any program may use it.
    """
    services = [unit for unit in startup.units.values() if unit.name.endswith(".service")]
    seen: set[tuple[Evidence, ...]] = set()
    for unit in services if has_npu(subject) else ():
        for finding in prove_emulation(unit.name, [XRT], environment_of(subject, unit)):
            if finding.evidence not in seen:
                seen.add(finding.evidence)
                yield finding


def has_npu(subject: Subject) -> bool:
    return any(NPU in chip.modules for chip in subject.chips)


def session_environment(root: Root) -> dict[str, Variable]:
    """The variables that are set for every login, as far as files say so plainly."""
    found: dict[str, Variable] = {}
    paths = (*FILES, *root.glob(*FOLDERS))
    # systemd has a link to /etc/environment in its folder.
    for path in dict.fromkeys(root.resolve(path) or path for path in paths):
        for line in ASSIGNMENT.finditer(root.text(path)):
            words = unquoted(line["value"])
            found[line["name"]] = Variable(words[0] if words else "", path)
    return found
