# SPDX-License-Identifier: Apache-2.0
"""Programs that compute on several nodes, or on several cards of one: do they find each other, and
the components of Open MPI that they ask for?
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.reading import environment
from imagebuilder.proof.reading.scripts import SiteService, site_services
from imagebuilder.proof.reading.systemd import SERVER_FAMILIES, address_families, said_in
from imagebuilder.proof.reading.texts import HOSTS, host_of, is_loopback, read_hosts, whole
from imagebuilder.proof.reading.units import service_lines
from imagebuilder.proof.subject import Subject, once
from imagebuilder.root import Root

# The options and variables that name the machine where the processes of a program meet.
MEETING = ("--rdzv-endpoint", "--rdzv_endpoint", "--master-addr", "--master_addr", "--address",
           "--dist-init-addr", "--data-parallel-address")  # fmt: skip
MEETING_VARIABLES = ("MASTER_ADDR", "PET_RDZV_ENDPOINT", "PET_MASTER_ADDR", "RAY_ADDRESS")
NODES = ("--nnodes", "--num-nodes", "--num_nodes")
# Programs whose processes find each other by the NICs of their machines (getifaddrs(3)).
LAUNCHERS = frozenset(("torchrun", "ray", "mpirun", "mpiexec", "deepspeed", "accelerate"))
# Open MPI's, with the options that set one of its parameters: `--mca NAME VALUE`.
MCA = ("--mca", "-mca", "--gmca", "-gmca")
MPI = frozenset(("mpirun", "mpiexec"))
NETLINK = "AF_NETLINK"
# Options whose value is a number of cards: of each node, and of all nodes together.
CARDS_OF_EACH = ("--nproc-per-node", "--nproc_per_node", "--num-gpus")
CARDS_OF_ALL = ("--tensor-parallel-size", "--tensor_parallel_size", "-tp")
BACKENDS = ("--distributed-executor-backend", "--distributed_executor_backend")
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


def prove_ranks(subject: Subject) -> Findings:
    # Names that /etc/hosts gives to the machine itself.
    names = {
        name: line
        for address, listed, line in read_hosts(subject.root)
        for name in listed
        if is_loopback(address) and not name.startswith(("localhost", "ip6-"))
    }
    for service in site_services(subject):
        if spans(service):
            if meets := meeting_place(service):
                yield from prove_names(service, *meets, names)
            yield from prove_loopback(service)
        if spans(service) or service.program in MPI:
            yield from prove_excluded(service)
            yield from prove_netlink(subject.root, service)
        yield from prove_cards(service)
        yield from prove_memory(subject.root, service)


def spans(service: SiteService) -> bool:
    """Whether a service is one of several, on other machines."""
    nodes = service.option(*NODES)
    meets = meeting_place(service)
    alone = nodes in ("1", "1:1")
    elsewhere = meets is not None and meets[0] != "0.0.0.0" and not is_loopback(meets[0])
    return not alone and (nodes is not None or (elsewhere and service.program in LAUNCHERS))


def meeting_place(service: SiteService) -> tuple[str, Evidence] | None:
    """The machine that a service is told to meet others at, without port, and where."""
    for name in MEETING_VARIABLES:
        if variable := service.environment.get(name):
            return meeting_host(variable.value), variable.evidence(name)
    told = service.option(*MEETING)
    return (meeting_host(told), service.evidence) if told else None


def meeting_host(address: str) -> str:
    return host_of(address.rpartition("//")[2])


def prove_names(
    service: SiteService, host: str, where: Evidence, names: dict[str, str]
) -> Findings:
    """A fault of a machine to meet at that each node takes for itself."""
    if host in names:
        what = f"{service.name} looks for {host} on its own node: {HOSTS} maps that name to the "
        what += "loopback address on every node"
        hint = f"map {host} to an address that the other nodes reach, or leave it to DNS"
        yield fault(what, where, Evidence(HOSTS, said=names[host]), hint=hint)


def prove_loopback(service: SiteService) -> Findings:
    for name, variable in service.environment.items():
        if re.fullmatch(environment.INTERFACE, name) and re.fullmatch(
            r"\s*=?lo\s*", variable.value
        ):
            what = f"{name}={variable.value} keeps {service.name} from the other nodes: it only "
            what += "uses the loopback interface"
            yield fault(what, variable.evidence(name), hint=environment.REMOVE)


def prove_excluded(service: SiteService) -> Findings:
    """A warning of interfaces to leave out without the loopback interface (uses_loopback()).

    The question `services` says so of services that overlays declare.
    """
    if service.name in service.subject.expectations.units:
        return
    for name, variable in service.environment.items():
        if environment.uses_loopback(name, variable.value):
            what = f"{name}={variable.value} of {service.name} {environment.USES_LOOPBACK}"
            yield warning(what, variable.evidence(name), hint=environment.ADD_LOOPBACK)
    for name, value in parameters_of(service):
        if environment.uses_loopback(name, value):
            what = f"{name} {value} of {service.name} {environment.USES_LOOPBACK}"
            yield warning(what, service.evidence, hint=environment.ADD_LOOPBACK)


def prove_netlink(root: Root, service: SiteService) -> Findings:
    """A fault of a service that may not ask the kernel for the NICs (getifaddrs(3), netlink(7))."""
    families = address_families(root, service.unit)
    if families is None or NETLINK in families or not families & set(SERVER_FAMILIES):
        return
    what = f"{service.name} cannot find its NICs, or other nodes: RestrictAddressFamilies= leaves "
    what += f"{NETLINK} out"
    where = said_in(root, service.unit, "RestrictAddressFamilies")
    yield fault(what, where, hint=f"add {NETLINK} to that line")


def prove_cards(service: SiteService) -> Findings:
    together = spans(service) or service.option(*BACKENDS) == "ray"
    told = service.option(*CARDS_OF_EACH, *(() if together else CARDS_OF_ALL)) or ""
    if told.isdecimal() and whole(told) > 1:
        what = f"{service.name} needs {told} cards in one node, and does not start on a node with "
        what += "fewer"
        yield warning(what, service.evidence, hint="set it to the number that every node has")


def prove_memory(root: Root, service: SiteService) -> Findings:
    """A warning about memory of a processor that a machine with one does not have."""
    for path in reversed(service.unit.paths):
        for key, value in service_lines(root.text(path)):
            nodes = [whole(each) for each in re.findall(r"\d+", value)]
            if key == "NUMAMask" and nodes and 0 not in nodes:
                what = f"{service.name} does not start on a machine with one processor: that "
                what += f"has no NUMA node {min(nodes)} (NUMAMask={value})"
                where = Evidence(path, said=f"NUMAMask={value}")
                hint = "remove it, or set it only on nodes that have that NUMA node"
                yield warning(what, where, hint=hint)
                return


def prove_mpi(subject: Subject) -> Findings:
    """Warnings of components that Open MPI is told to use and does not have: MPI_Init() then fails.

    A job may set the parameter by itself.  Tried with Open MPI 5.0.11: so it is with a list of btl,
    pml, osc or coll that has one unknown name, whatever else is in it.  `btl = self,vader` works,
    because that is another name of sm.
    """
    version = version_of(subject)
    if not version:
        return
    for known in environment.runtime_files(subject.root):
        yield from prove_components(subject, known, version)
    told: set[str] = set()
    for service in site_services(subject):
        for found in prove_components(subject, service.environment, version):
            if found.what not in told:
                told.add(found.what)
                yield found
        for name, value in parameters_of(service):
            yield from prove_list(subject, name, value, service.evidence, version)


def parameters_of(service: SiteService) -> Iterator[tuple[str, str]]:
    """The parameters of Open MPI that a command line sets."""
    words = service.words if service.program in MPI else ()
    found = zip(words, words[1:], words[2:], strict=False)
    return ((name, value) for option, name, value in found if option in MCA)


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


def prove_components(subject: Subject, known: environment.Environment, version: str) -> Findings:
    for name, variable in known.items():
        yield from prove_list(
            subject, name.removeprefix(PREFIX), variable.value, variable.evidence(name), version
        )


def prove_list(
    subject: Subject, framework: str, value: str, where: Evidence, version: str
) -> Findings:
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
        yield warning(what, where, hint=hint)
