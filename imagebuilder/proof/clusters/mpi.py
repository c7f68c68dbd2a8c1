# SPDX-License-Identifier: Apache-2.0
"""Components that Open MPI is told to use and does not have: MPI_Init() then fails.

Tried with Open MPI 5.0.11: so it is with a list of btl, pml, osc or coll that has one unknown name,
whatever else is in it.  `btl = self,vader` works, because that is another name of sm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.clusters.ranks import MCA, MPI
from imagebuilder.proof.reading.environment import Environment, runtime_files
from imagebuilder.proof.reading.site import site_services
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject, once

# Packages with Open MPI, by distribution.
PACKAGES = ("openmpi-bin", "libopenmpi40", "libopenmpi3", "libopenmpi3t64", "openmpi")
MAJOR = re.compile(r"(?:\d+:)?(\d{1,3})\.")
PREFIX = "OMPI_MCA_"
# By framework: components that are not in a release, by its major version, for an image without
# ompi_info(1), which lists those that are.
REMOVED = {
    "btl": {"openib": 5, "scif": 5},
    "pml": {"yalla": 5},
    "osc": {"pt2pt": 5},
    "coll": {"fca": 5},
}
INFO = ("ompi_info", "--parsable")
LISTED = re.compile(r"^mca:(?P<framework>\w+):(?P<name>\w+):version:", re.MULTILINE)
OTHER_NAMES = frozenset(("vader",))


def prove_mpi(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: a job may set the parameter by itself."""
    version = version_of(subject)
    if not version:
        return
    for known in runtime_files(subject.root):
        yield from prove_components(subject, known, version)
    told: set[str] = set()
    for service in site_services(subject, startup):
        for found in prove_components(subject, service.environment, version):
            if found.what not in told:
                told.add(found.what)
                yield found
        words = service.words
        for option, name, value in zip(words, words[1:], words[2:], strict=False):
            if option in MCA and service.program in MPI:
                yield from prove_list(subject, name, value, service.evidence, version)


def version_of(subject: Subject) -> str:
    """The version of the image's Open MPI, "" if it has none that is known."""
    found = {**subject.family.package_versions(subject.root), **subject.packages}
    return next((found[name] for name in PACKAGES if name in found), "")


@once
def components_of(subject: Subject) -> dict[str, frozenset[str]]:
    """The components of the image's Open MPI by framework, as it lists them; else none."""
    found: dict[str, set[str]] = {}
    for match in LISTED.finditer(subject.run(INFO).stdout):
        found.setdefault(match["framework"], set()).add(match["name"])
    return {framework: frozenset(names) for framework, names in found.items()}


def prove_components(subject: Subject, known: Environment, version: str) -> Iterator[Finding]:
    """Warnings of parameters in a file, or of variables."""
    for name, variable in known.items():
        yield from prove_list(
            subject, name.removeprefix(PREFIX), variable.value, variable.evidence(name), version
        )


def prove_list(
    subject: Subject, framework: str, value: str, where: Evidence, version: str
) -> Iterator[Finding]:
    """A warning of a list of components to use; one that begins with ^ leaves components out."""
    value = value.strip()
    if framework not in REMOVED or not value or value.startswith("^"):
        return
    names = [each.strip() for each in value.split(",")]
    listed = components_of(subject).get(framework)
    major = MAJOR.match(version)
    if listed:
        gone = [name for name in names if name and name not in listed | OTHER_NAMES]
    else:
        removed = REMOVED[framework]
        gone = [n for n in names if major and removed.get(n, 1000) <= int(major[1])]
    if gone:
        what = f"MPI programs fail in MPI_Init(): {framework} = {value} asks for {gone[0]}, "
        what += f"which Open MPI {version} does not have"
        hint = f"remove {gone[0]}; UCX (pml = ucx) uses InfiniBand since Open MPI 5"
        yield SAY.warning(what, where, hint=hint)
