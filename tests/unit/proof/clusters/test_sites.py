# SPDX-License-Identifier: Apache-2.0
"""Settings of a cluster that were right for other cards, servers, networks or releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.families.apt.family import APT
from imagebuilder.image.proof import Level
from imagebuilder.process import Completed
from imagebuilder.proof.clusters.engines import prove_bridges
from imagebuilder.proof.clusters.kubernetes import prove_kubernetes
from imagebuilder.proof.clusters.peers import prove_shares
from imagebuilder.proof.clusters.ranks import prove_mpi
from imagebuilder.proof.clusters.slurm import job_programs, prove_gres
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root
from tests.unit.proof.trees import Content, Link, Sandbox, make_tree, running, subject

GEFORCE = ("10de:2b85", "GeForce RTX 5090", "sm_120")
UNIT = "/etc/systemd/system/a.service"
DOCKER, FSTAB, HOSTS = "/etc/docker/daemon.json", "/etc/fstab", "/etc/hosts"
NFS = "172.17.4.10:/export /srv nfs4 nofail 0 0\n"
SLURM, GRES = "/etc/slurm/slurm.conf", "/etc/slurm/gres.conf"
NODES = "NodeName=n[1-8] CPUs=32 Gres=gpu:{} State=UNKNOWN\n"
KUBELET = "/usr/bin/kubelet --config=/etc/kubelet.yaml"
SETTINGS, RESOLVER = "/etc/kubelet.yaml", "/etc/resolv.conf"
STUB = Link("../run/systemd/resolve/stub-resolv.conf")
MPI = "/etc/openmpi/openmpi-mca-params.conf"
STATUS = "/var/lib/dpkg/status"
OPEN_MPI = "Package: openmpi-bin\nStatus: install ok installed\nVersion: {}\n"


def asked(
    root: Path,
    commands: list[str],
    files: dict[str, Content],
    values: dict[str, str],
    answers: dict[str, Completed | str],
) -> tuple[Subject, Startup]:
    run = Sandbox(answers)
    given = subject(make_tree(root, {UNIT: "[Service]\n", **files}), run=run, hardware=[GEFORCE])
    given.__dict__["shipped"] = {}
    settings = {"Unit Load State": ("loaded",)} | {key: (value,) for key, value in values.items()}
    units = {
        name: LoadedUnit(name, (UNIT,), settings, {"ExecStart": (tuple(command.split()),)})
        for name, command in zip(("a.service", "b.service", "c.service"), commands, strict=False)
    }
    return given, Startup(frozenset(units), {}, units, ())


BRIDGES: list[tuple[dict[str, Content], str, str]] = [
    ({FSTAB: NFS}, "", "172.17.4.10 is in 172.17.0.0/16, which docker0 takes on every node"),
    ({FSTAB: NFS, DOCKER: '{"bip": "10.9.0.1/24"}'}, "", ""),
    ({FSTAB: NFS, DOCKER: '{"bip": "172.17.4.1/24"}'}, "", "in 172.17.4.0/24"),
    ({FSTAB: NFS, DOCKER: '{"bridge": "none"}'}, "", ""),
    ({FSTAB: NFS, DOCKER: '{"default-address-pools": [{"base": "10.9.0.0/16", "size": 24}]}'}, "",
     ""),
    ({FSTAB: NFS}, " --bip=10.9.0.1/24", ""),
    ({FSTAB: NFS}, " --bridge br0", ""),
    ({FSTAB: "10.0.0.9:/export /srv nfs4 nofail 0 0\n"}, "", ""),
    ({FSTAB: "/dev/disk/by-label/172.17.0.1 /srv ext4 nofail 0 0\n"}, "", ""),
    ({FSTAB: "nas:/export /srv nfs4 nofail 0 0\n", HOSTS: "172.17.9.9 nas\n"}, "",
     "the server of /srv cannot be reached: 172.17.9.9"),
    ({FSTAB: "//172.17.1.1/share /srv cifs nofail 0 0\n"}, "", "172.17.1.1"),
    ({"/etc/chrony/chrony.conf": "server 172.17.0.5 iburst\n"}, "", "a server of /etc/chrony"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "options", "said"), BRIDGES)
def test_networks_of_docker(
    tmp_path: Path, files: dict[str, Content], options: str, said: str
) -> None:
    given, startup = asked(tmp_path, [f"/usr/bin/dockerd{options}"], files, {}, {})
    found = list(prove_bridges(running(given, startup)))
    assert [each.level for each in found] == [Level.WARNING] * bool(said)
    assert all(said in each.what for each in found)


def test_networks_without_docker(tmp_path: Path) -> None:
    given, startup = asked(tmp_path, ["/usr/bin/podman system service"], {FSTAB: NFS}, {}, {})
    assert list(prove_bridges(running(given, startup))) == []


TYPES: list[tuple[dict[str, Content], str]] = [
    ({SLURM: NODES.format("a100:1"), GRES: "Name=gpu Type=rtx5090 File=/dev/nvidia0\n"},
     "of the type a100 on its nodes (/etc/slurm/slurm.conf), and /etc/slurm/gres.conf says rtx50"),
    ({SLURM: NODES.format("rtx5090:1"), GRES: "Name=gpu Type=rtx5090 File=/dev/nvidia0\n"}, ""),
    # Other nodes of the cluster have other cards.
    ({SLURM: NODES.format("a100:1") + NODES.format("rtx5090:2"),
      GRES: "Name=gpu Type=rtx5090 File=/dev/nvidia0\n"}, ""),
    ({SLURM: NODES.format("1"), GRES: "Name=gpu Type=rtx5090 File=/dev/nvidia0\n"}, ""),
    ({SLURM: NODES.format("a100:1"), GRES: "Name=gpu File=/dev/nvidia0\n"}, ""),
    ({SLURM: NODES.format("a100:1"), GRES: "AutoDetect=nvml\n"}, "the image is for GeForce RTX"),
    ({SLURM: NODES.format("nvidia_geforce_rtx_5090:1"), GRES: "AutoDetect=nvml\n"}, ""),
    ({SLURM: NODES.format("rtx5090:1"), GRES: "AutoDetect=nvml\n"}, ""),
    ({SLURM: NODES.format("nvidia_h100_80gb_hbm3:1"), GRES: "AutoDetect=nvml\n"}, "nvidia_h"),
    ({SLURM: NODES.format("big:1"), GRES: "AutoDetect=nvml\n"}, ""),
    ({SLURM: NODES.format("a100:1")}, ""),
    ({SLURM: "PartitionName=x TRESBillingWeights=gpu:a100=1\n",
      GRES: "Name=gpu Type=rtx5090 File=/dev/nvidia0\n"}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("files", "said"), TYPES)
def test_types_of_cards_for_slurm(tmp_path: Path, files: dict[str, Content], said: str) -> None:
    given, startup = asked(tmp_path, ["/usr/sbin/slurmd -D"], files, {}, {})
    found = list(prove_gres(running(given, startup)))
    assert [each.level for each in found] == [Level.WARNING] * bool(said)
    assert all(said in each.what for each in found)


def test_programs_of_slurmd(tmp_path: Path) -> None:
    text = "Prolog=/etc/slurm/prolog.d/*,epilog\n#Epilog=/x\nTaskProlog=/opt/t\n"
    files: dict[str, Content] = {SLURM: text, "/etc/slurm/prolog.d/1": "", "/etc/slurm/epilog": ""}
    given, startup = asked(tmp_path, ["/usr/sbin/slurmd -D"], files, {}, {})
    assert list(job_programs(running(given, startup))) == [
        ("/etc/slurm/prolog.d/1", "Prolog"), ("/etc/slurm/epilog", "Prolog"),
        ("/opt/t", "TaskProlog"),
    ]  # fmt: skip
    assert list(job_programs(running(given, Startup(frozenset(), {}, {}, ())))) == []


SERVE = "/opt/vllm/bin/vllm serve /models/m"
SHARES: list[tuple[list[str], dict[str, str], str]] = [
    ([f"{SERVE} --gpu-memory-utilization 0.85", f"{SERVE} --gpu-memory-utilization=0.4"], {},
     "services want 1.25 of the memory of one card: a.service (0.85) and b.service (0.4)"),
    ([f"{SERVE} --gpu-memory-utilization 0.5", f"{SERVE} --gpu-memory-utilization 0.5"], {}, ""),
    ([f"{SERVE} --gpu-memory-utilization 0.4", SERVE], {}, "b.service (0.9, the default)"),
    ([SERVE], {}, ""),
    ([SERVE, SERVE], {"Conflicts": "a.service b.service"}, ""),
    (["/opt/serve a", "/opt/serve b"], {"Environment": 'ARGS=--mem-fraction-static 0.6'},
     "services want 1.20 of the memory"),
    (["/opt/serve a", "/opt/serve b"], {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("commands", "values", "said"), SHARES)
def test_shares_of_a_card(
    tmp_path: Path, commands: list[str], values: dict[str, str], said: str
) -> None:
    given, startup = asked(tmp_path, commands, {}, values, {})
    found = list(prove_shares(running(given, startup)))
    assert [each.level for each in found] == [Level.WARNING] * bool(said)
    assert all(said in each.what for each in found)


def test_shares_of_several_cards(tmp_path: Path) -> None:
    given, startup = asked(tmp_path, [SERVE, SERVE], {}, {}, {})
    other = startup.units["b.service"]
    values = {**other.values, "Environment": ("CUDA_VISIBLE_DEVICES=1",)}
    second = LoadedUnit(other.name, other.paths, values, other.commands)
    units = {**startup.units, "b.service": second}
    assert list(prove_shares(running(given, Startup(startup.jobs, {}, units, ())))) == []
    assert list(prove_shares(running(subject(tmp_path), startup))) == []  # it has no card


RESOLVERS: list[tuple[str, dict[str, Content], str]] = [
    (KUBELET, {SETTINGS: "resolvConf: /etc/resolv.conf\n", RESOLVER: STUB}, "names 127.0.0.53"),
    (KUBELET, {SETTINGS: "kind: KubeletConfiguration\n", RESOLVER: STUB}, "names 127.0.0.53"),
    (KUBELET, {SETTINGS: "kind: KubeletConfiguration\n", RESOLVER: "nameserver 127.0.0.1\n"},
     "names 127.0.0.1"),
    (KUBELET, {SETTINGS: "resolvConf: /run/systemd/resolve/resolv.conf\n", RESOLVER: STUB}, ""),
    (KUBELET, {SETTINGS: "kind: x\n", RESOLVER: "nameserver 127.0.0.1\nnameserver 10.0.0.1\n"}, ""),
    (KUBELET, {SETTINGS: "kind: x\n", RESOLVER: Link("../run/systemd/resolve/resolv.conf")}, ""),
    (KUBELET, {RESOLVER: STUB}, ""),  # the node gets its settings
    (f"{KUBELET} --resolv-conf=/etc/resolv.conf", {RESOLVER: STUB}, "names 127.0.0.53"),
    (f"{KUBELET} --resolv-conf=", {SETTINGS: "kind: x\n", RESOLVER: STUB}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("command", "files", "said"), RESOLVERS)
def test_name_servers_of_pods(
    tmp_path: Path, command: str, files: dict[str, Content], said: str
) -> None:
    given, startup = asked(tmp_path, [command], files, {}, {})
    found = [
        each for each in prove_kubernetes(running(given, startup)) if "name server" in each.what
    ]
    assert [each.level for each in found] == [Level.WARNING] * bool(said)
    assert all(said in each.what for each in found)


INFO = "\n".join(f'mca:btl:{name}:version:"mca:2.1.0"' for name in ("self", "sm", "tcp"))
COMPONENTS: list[tuple[str, str, str, str]] = [
    ("btl = self,vader,openib\n", "5.0.9-1", "", "asks for openib, which Open MPI 5.0.9-1"),
    ("btl = self,vader,openib\n", "4.1.6-1", "", ""),
    ("btl = ^openib\n", "5.0.9-1", "", ""),
    ("btl = self,sm\n", "5.0.9-1", "", ""),
    ("pml = yalla\n", "5.0.9-1", "", "asks for yalla"),
    ("mtl = mxm\n", "5.0.9-1", "", ""),  # a job that does not use pml = cm goes on
    ("btl_openib_if_include = mlx5_0\n", "5.0.9-1", "", ""),
    ("btl = self,usnic\n", "5.0.9-1", INFO, "asks for usnic"),
    ("btl = self,vader,tcp\n", "5.0.9-1", INFO, ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "version", "info", "said"), COMPONENTS)
def test_components_of_open_mpi(
    tmp_path: Path, text: str, version: str, info: str, said: str
) -> None:
    files: dict[str, Content] = {MPI: text, STATUS: OPEN_MPI.format(version)}
    answers: dict[str, Completed | str] = {"ompi_info --parsable": info} if info else {}
    given, startup = asked(tmp_path, [], files, {}, answers)
    found = list(prove_mpi(running(given, startup)))
    assert [each.level for each in found] == [Level.WARNING] * bool(said)
    assert all(said in each.what for each in found)


def test_components_that_a_service_asks_for(tmp_path: Path) -> None:
    files: dict[str, Content] = {STATUS: OPEN_MPI.format("5.0.9-1")}
    commands = ["/usr/bin/mpirun --mca btl openib,self /opt/x"]
    (found,) = prove_mpi(running(*asked(tmp_path / "1", commands, files, {}, {})))
    assert found.what.startswith("MPI programs fail in MPI_Init(): btl = openib,self asks for")
    values = {"Environment": "OMPI_MCA_pml=yalla"}
    (found,) = prove_mpi(running(*asked(tmp_path / "2", ["/opt/x"], files, values, {})))
    assert "pml = yalla" in found.what
    assert list(prove_mpi(running(*asked(tmp_path / "3", commands, {}, {}, {})))) == []


def test_versions_of_packages(tmp_path: Path) -> None:
    text = "Package: a\nStatus: install ok installed\nVersion: 1\n\n"
    text += "Package: b\nStatus: deinstall ok config-files\nVersion: 2\n"
    root = make_tree(tmp_path, {STATUS: text})
    assert APT.package_versions(root) == {"a": "1"}
    assert APT.package_versions(Root(tmp_path / "none")) == {}
