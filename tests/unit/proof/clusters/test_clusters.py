# SPDX-License-Identifier: Apache-2.0
"""Agents of clusters and programs on several nodes, each with settings that work beside it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.clusters.peers import prove_clocks
from imagebuilder.proof.clusters.slurm import prove_slurm
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.prove import OF_CLUSTERS
from tests.unit.proof.trees import Content, Sandbox, make_tree, running, subject

GEFORCE = ("10de:2b85", "GeForce RTX 5090", "sm_120")
NPU = ("1022:1502", "XDNA NPU", "")
UNIT = "/etc/systemd/system/a.service"
MODELS = "/dev/disk/by-label/models /models ext4 nofail 0 0\n"
NFS = "10.0.0.1:/docker /srv/docker nfs4 nofail 0 0\n"
DOCKER, CONTAINERD = "/etc/docker/daemon.json", "/etc/containerd/config.toml"
NVIDIA = "[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'nvidia'\n"
RUNC = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\nSystemdCgroup = "
KUBELET, K3S = "/etc/kubelet.yaml", "/etc/rancher/k3s/config.yaml"
RDMA: dict[str, Content] = {"/etc/modules-load.d/rdma.conf": "mlx5_ib\n"}
CGROUP, SLURM = "/etc/slurm/cgroup.conf", "/etc/slurm/slurm.conf"
RUN_KUBELET = f"/usr/bin/kubelet --config={KUBELET}"
ENDPOINT = "containerRuntimeEndpoint: unix://"
CNI, CPUS = "/etc/cni/net.d", "/var/lib/kubelet/cpu_manager_state"
OLD_BRIDGE = '{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.88.0.0/16"}}'
BRIDGE = """{"plugins": [{"type": "bridge", "ipam": {"type": "host-local",
    "ranges": [[{"subnet": "10.88.0.0/16"}]]}}, {"type": "portmap"}]}"""
FLANNEL = '{"name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}'
ENROOT = "ENROOT_DATA_PATH /tmp/enroot/user-$(id -u)\n"
SETUID = "/usr/libexec/apptainer/bin/starter-suid"
NO_NAMESPACES: dict[str, Content] = {"/etc/sysctl.d/9.conf": "user.max_user_namespaces = 0\n"}
TRAIN = "/opt/bin/torchrun --nnodes=2 --rdzv-endpoint=node0:29500 /models/train.py"
ALONE = "/opt/bin/torchrun --nnodes=1 --master-addr=node0 /models/train.py"


def said_of(
    root: Path, command: str, files: dict[str, Content], values: dict[str, str]
) -> list[tuple[Level, str]]:
    service = "".join(f"{key}={value}\n" for key, value in values.items())
    sysctl = "".join(str(text) for path, text in files.items() if path.startswith("/etc/sysctl.d"))
    run = Sandbox({"systemd-analyze cat-config sysctl.d": f"# /etc/sysctl.d/9.conf\n{sysctl}"})
    given = subject(
        make_tree(root, {UNIT: f"[Service]\n{service}", **files}), run=run, hardware=[GEFORCE]
    )
    given.__dict__["shipped"] = {}
    settings = {key: (value,) for key, value in values.items()}
    units = {
        name: LoadedUnit(
            name,
            (UNIT,),
            {"Unit Load State": ("loaded",), **settings},
            {"ExecStart": (tuple(each.split()),)},
        )
        for name, each in zip(("a.service", "b.service"), command.split(" & "), strict=False)
    }
    startup = Startup(frozenset(units), {}, units, ())
    running(given, startup)
    return [(found.level, found.what) for found in chain(*(rule(given) for rule in OF_CLUSTERS))]


FAULTS: list[tuple[str, dict[str, Content], dict[str, str], str]] = [
    # Storage of container engines.
    ("/usr/bin/dockerd -s overlay2", {}, {}, "on the root of a node, which is an overlay itself"),
    ("/usr/bin/dockerd -s overlay2 -g /var/lib/models", {"/etc/fstab": MODELS}, {},
     "cannot start containers: it keeps layers in /var/lib/models, and the kernel cannot mount an "
     "overlay whose layers are on the root of a node"),
    ("/usr/bin/dockerd -s overlay2",
     {DOCKER: '{"data-root": "/srv/docker"}', "/etc/fstab": NFS}, {},
     "it keeps layers in /srv/docker, and the kernel cannot mount an overlay whose layers are on "
     "nfs4 (10.0.0.1:/docker)"),
    (f"/usr/bin/containerd & {RUN_KUBELET}", {KUBELET: "cgroupDriver: cgroupfs\n"}, {},
     "a.service cannot start containers: it keeps layers in /var/lib/containerd"),
    ("/usr/bin/k3s server", {}, {}, "it keeps layers in /var/lib/rancher/k3s"),
    # The kubelet.
    (RUN_KUBELET, {KUBELET: "kind: x\n", "/etc/fstab": "/dev/sda2 none swap sw 0 0\n"}, {},
     "the node swaps, and failSwapOn is true"),
    (RUN_KUBELET, {KUBELET: "cgroupDriver: systemd\n", CONTAINERD: f"{RUNC}false\n"}, {},
     "cgroup driver systemd, but containerd uses cgroupfs"),
    (RUN_KUBELET, {KUBELET: "kind: x\n", CONTAINERD: f"{RUNC}true\n"}, {},
     "cgroup driver cgroupfs, but containerd uses systemd"),
    (RUN_KUBELET, {KUBELET: "cgroupDriver: systemd\n",
                   CONTAINERD: f"{RUNC}false\n{RUNC.replace('runc.o', 'other.o')}true\n"}, {},
     "cgroup driver systemd, but containerd uses cgroupfs"),
    ("/usr/bin/k3s agent --data-dir /models/k3s", {"/etc/fstab": MODELS}, {},
     "what the agent writes to /etc/rancher/node is lost"),
    # Slurm.
    ("/usr/sbin/slurmd -D", {"/etc/slurm/cgroup.conf": "CgroupPlugin=cgroup/v1\n"}, {},
     "CgroupPlugin=cgroup/v1"),
    # Programs on several nodes.
    (TRAIN, {}, {"Environment": "NCCL_SOCKET_IFNAME=lo"}, "it only uses the loopback interface"),
    (TRAIN, {}, {"RestrictAddressFamilies": "AF_UNIX AF_INET"}, "leaves AF_NETLINK out"),
    (TRAIN, {"/etc/hosts": "127.0.1.1 node0.lab node0\n"}, {}, "looks for node0 on its own node"),
    # Programs that go to the background.
    ("/opt/bin/ray start --address=10.0.0.1:6379", {}, {}, "ray goes to the background"),
    ("/usr/bin/docker run --rm -d vllm/vllm-openai", {}, {}, "docker goes to the background"),
    ("/usr/bin/screen -dmS serve /opt/serve", {}, {}, "screen goes to the background"),
    ("/usr/sbin/slurmd", {}, {}, "slurmd goes to the background"),
]  # fmt: skip
WARNINGS: list[tuple[str, dict[str, Content], dict[str, str], str]] = [
    (RUN_KUBELET, {KUBELET: "kind: x\n", "/etc/sysctl.d/9.conf":
                   "net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.forwarding = 0\n"}, {},
     "net.ipv4.conf.all.forwarding=0 of /etc/sysctl.d/9.conf: a.service does not change it"),
    (RUN_KUBELET, {KUBELET: "kind: x\n", "/etc/sysctl.d/9.conf":
                   "net.bridge.bridge-nf-call-iptables=0\n"}, {}, "services of the cluster"),
    ("/usr/bin/dockerd", {}, {}, "copies every layer of a container"),
    ("/usr/bin/containerd", {}, {}, "unless its clients ask for another snapshotter"),
    ("/usr/bin/containerd", {"/etc/fstab": "/dev/sda1 / ext4 rw 0 0\n"}, {},
     "it keeps layers in /var/lib/containerd"),
    ("/usr/bin/containerd", {CONTAINERD: 'root = "/data"\n'}, {}, "it keeps layers in /data"),
    ("/usr/sbin/slurmd -D", RDMA, {}, "may lock 8388608 bytes, too little for RDMA"),
    ("/usr/sbin/slurmd -D", {CGROUP: "ConstrainDevices=yes\nConstrainCores=YES # both\n",
                             SLURM: "AuthType=auth/slurm\nTaskPlugin=task/affinity\n"}, {},
     "ConstrainDevices, ConstrainCores of /etc/slurm/cgroup.conf have no effect on jobs of "),
    ("/usr/sbin/slurmd -D", {"/etc/slurm/gres.conf": "Name=gpu File=/dev/nvidia[0-3]\n"}, {},
     "on a node with fewer than 4 cards"),
    ("/usr/sbin/slurmd -D", {"/etc/slurm/gres.conf": "Name=gpu File=/dev/dri/renderD129\n"}, {},
     "on a node with one card"),
    ("/opt/bin/vllm serve m -tp 2", {}, {}, "needs 2 cards in one node"),
    ("/opt/bin/torchrun --nnodes=2 --nproc-per-node=4 t.py", {}, {}, "needs 4 cards in one node"),
    ("/opt/serve", {}, {"NUMAMask": "1"}, "that has no NUMA node 1"),
    (TRAIN, {}, {"Environment": "NCCL_SOCKET_IFNAME=^docker0"}, "of a.service does not exclude lo"),
    ("/usr/bin/mpirun --mca btl_tcp_if_exclude docker0 -H a,b /opt/x", {}, {},
     "btl_tcp_if_exclude docker0 of a.service does not exclude lo"),
    # Networks of pods.
    (RUN_KUBELET, {KUBELET: "kind: x\n", f"{CNI}/10-a.conflist": BRIDGE,
                   f"{CNI}/10-flannel.conflist": FLANNEL}, {},
     "containerd takes 10-a.conflist of /etc/cni/net.d for pods, a bridge of each node with 10.88"),
    (RUN_KUBELET, {KUBELET: f"{ENDPOINT}/run/crio/other.sock\n", f"{CNI}/1.conf": OLD_BRIDGE,
                   f"{CNI}/2.conf": FLANNEL, "/etc/crio/crio.conf.d/1.conf": "[crio.network]\n"},
     {}, "CRI-O takes 1.conf"),
    # What a daemon of the builder wrote.
    (RUN_KUBELET, {KUBELET: "cpuManagerPolicy: static\n", CPUS: '{"policyName": "none"}'}, {},
     "its policy is none, but a.service has static, and exits whenever it starts"),
    (f"{RUN_KUBELET} --cpu-manager-policy=static", {CPUS: '{"policyName": "static"}'}, {},
     "it lists the processors of the builder"),
    (f"{RUN_KUBELET} --root-dir /srv/k", {"/srv/k/memory_manager_state": "{"}, {},
     "its policy is not valid"),
    ("/usr/bin/etcd", {"/var/lib/etcd/member/snap/db": "x"}, {}, "one and the same member"),
    ("/usr/bin/consul agent", {"/opt/consul/node-id": "x"}, {}, "one and the same member"),
    # Programs beside each other.
    ("/usr/bin/dcgm-exporter -r localhost:5555", {}, {}, "needs nv-hostengine on its node"),
    ("/usr/sbin/slurmd -D", {"/etc/slurm/slurm.conf": "ClusterName=a\n"}, {}, "needs munged"),
    (RUN_KUBELET, {KUBELET: f"{ENDPOINT}/run/crio/crio.sock\n"}, {}, "needs crio on its node"),
    (f"{RUN_KUBELET} --container-runtime-endpoint=unix:///run/containerd/containerd.sock", {}, {},
     "needs containerd on its node"),
    ("/usr/bin/nv-fabricmanager", {}, {}, "GeForce RTX 5090 has no NVSwitch to manage"),
    ("/opt/serve", {"/usr/bin/apptainer": "", **NO_NAMESPACES}, {}, "cannot start containers"),
    # What grows in memory.
    ("/opt/serve", {}, {"StandardOutput": "append:/var/log/serve.log"}, "writes to /var/log/serve"),
    ("/opt/serve", {"/etc/logrotate.d/serve": "/var/log/*.log {\n}\n"},
     {"StandardError": "file:/var/log/serve.log"}, "nothing rotates it"),
    ("/usr/bin/flm pull m", {}, {"Environment": "FLM_MODEL_PATH=/var/lib/flm"}, "fetches a"),
    ("/usr/bin/curl -o /var/lib/m.gguf https://example.org/m.gguf", {}, {}, "/var/lib/m.gguf is"),
    ("/opt/bin/hf download org/m --local-dir /srv/m", {}, {}, "/srv/m is not on a disk"),
    ("/opt/serve", {"/usr/bin/enroot": "", "/etc/enroot/enroot.conf": ENROOT}, {}, "Enroot"),
]  # fmt: skip
# Of these, the node does have a disk, a peer or a device.
RIGHT: list[tuple[str, dict[str, Content], dict[str, str]]] = [
    ("/usr/bin/dockerd --data-root=/models/docker", {"/etc/fstab": MODELS}, {}),
    (RUN_KUBELET, {KUBELET: "kind: x\n", "/etc/sysctl.d/9.conf":
                   "net.ipv4.conf.all.forwarding = 0\nnet.ipv4.ip_forward = 1\n"}, {}),
    ("/usr/bin/k3s server --data-dir /models/k3s",
     {"/etc/fstab": MODELS, "/etc/sysctl.d/9.conf": "net.ipv4.ip_forward = 0\n"}, {}),
    ("/usr/bin/dockerd", {DOCKER: '{"storage-driver": "vfs"}'}, {}),
    ("/usr/bin/containerd", {CONTAINERD: 'disabled_plugins = ["cri"]\n'}, {}),
    ("/usr/bin/containerd --root /models/c", {"/etc/fstab": MODELS}, {}),
    (RUN_KUBELET, {KUBELET: "failSwapOn: false\n", "/etc/fstab": "/dev/sda2 none swap sw 0 0\n"},
     {}),
    (f"{RUN_KUBELET} --fail-swap-on=false", {"/etc/fstab": "/dev/sda2 none swap sw 0 0\n"}, {}),
    (RUN_KUBELET, {KUBELET: "cgroupDriver: systemd\n", CONTAINERD: f"{RUNC}true\n"}, {}),
    (RUN_KUBELET, {KUBELET: "cgroupDriver: systemd\n",
                   CONTAINERD: f"{NVIDIA}{RUNC.replace('runc.o', 'nvidia.o')}true\n"}, {}),
    (RUN_KUBELET, {KUBELET: "kind: x\n", CONTAINERD: "version = 3\n"}, {}),
    (RUN_KUBELET, {f"{CNI}/87-podman.conflist": BRIDGE, f"{CNI}/10-flannel.conflist": FLANNEL}, {}),
    (RUN_KUBELET, {f"{CNI}/10-a.conflist": BRIDGE, f"{CNI}/87-podman.conflist": BRIDGE}, {}),
    (RUN_KUBELET, {f"{CNI}/10-a.conflist.off": BRIDGE, f"{CNI}/10-flannel.conflist": FLANNEL}, {}),
    (RUN_KUBELET, {f"{CNI}/10-a.conflist": BRIDGE.replace("10.88.0.0/16", "usePodCidr"),
                   f"{CNI}/10-flannel.conflist": FLANNEL}, {}),
    (RUN_KUBELET, {f"{CNI}/10-a.conflist": BRIDGE, f"{CNI}/10-flannel.conflist": FLANNEL,
                   CONTAINERD: "[plugins.'io.containerd.cri.v1.runtime'.cni]\nmax_conf_num = 0\n"},
     {}),
    (RUN_KUBELET, {KUBELET: f"{ENDPOINT}/run/crio/other.sock\n", f"{CNI}/1.conf": OLD_BRIDGE,
                   f"{CNI}/2.conf": FLANNEL,
                   "/etc/crio/crio.conf": "[crio.network]\ncni_default_network = 'cbr0'\n"}, {}),
    ("/opt/serve", {f"{CNI}/10-a.conflist": BRIDGE, f"{CNI}/10-flannel.conflist": FLANNEL}, {}),
    (RUN_KUBELET, {CPUS: '{"policyName": "none"}'}, {}),
    (RUN_KUBELET, {KUBELET: "cpuManagerPolicy: static\n", CPUS: '{"policyName": "none"}',
                   "/etc/fstab": MODELS.replace("/models", "/var/lib/kubelet")}, {}),
    (RUN_KUBELET, {KUBELET: "cpuManagerPolicy: static\n", CPUS: '{"policyName": "none"}',
                   "/etc/tmpfiles.d/k.conf": "r! /var/lib/kubelet/*_manager_state\n"}, {}),
    (f"{RUN_KUBELET} & /usr/bin/rm -f {CPUS}",
     {KUBELET: "cpuManagerPolicy: static\n", CPUS: '{"policyName": "none"}'}, {}),
    ("/opt/serve", {KUBELET: "cpuManagerPolicy: static\n", CPUS: '{"policyName": "none"}'}, {}),
    ("/opt/serve", {"/var/lib/etcd/member/snap/db": "x"}, {}),
    ("/usr/bin/k3s agent --data-dir /models/k3s",
     {"/etc/fstab": MODELS, K3S: "with-node-id: true\n"}, {}),
    ("/usr/sbin/slurmd -D", RDMA, {"LimitMEMLOCK": str((1 << 64) - 1)}),
    ("/usr/sbin/slurmd -D", {"/etc/slurm/gres.conf": "Name=gpu File=/dev/nvidia0\n"}, {}),
    ("/usr/sbin/slurmd -D", {"/etc/slurm/gres.conf": "Name=gpu File=/dev/nvidia[,-]\n"}, {}),
    ("/usr/sbin/slurmd -D", {"/etc/slurm/cgroup.conf": "CgroupPlugin=autodetect\n"}, {}),
    ("/usr/sbin/slurmd -D", {**RDMA, SLURM: "AuthType=auth/slurm\nUsePAM=1\n",
                             "/etc/pam.d/slurm": "session required pam_limits.so\n"}, {}),
    ("/usr/sbin/slurmd -D", {CGROUP: "ConstrainDevices=yes\n",
                             SLURM: "AuthType=auth/slurm\nTaskPlugin=task/affinity,Task/cgroup\n"},
     {}),
    ("/usr/sbin/slurmd -D", {CGROUP: "#ConstrainDevices=yes\nConstrainCores=no\n",
                             SLURM: "AuthType=auth/slurm\nTaskPlugin=task/affinity\n"}, {}),
    ("/usr/sbin/slurmd -D", {CGROUP: "ConstrainDevices=yes\n", SLURM: "AuthType=auth/slurm\n"},
     {}),
    (TRAIN, {}, {"Environment": "NCCL_SOCKET_IFNAME=^lo,docker0"}),
    (ALONE, {}, {"Environment": "NCCL_SOCKET_IFNAME=lo"}),
    (ALONE, {}, {"Environment": "NCCL_SOCKET_IFNAME=^docker0"}),
    ("/usr/bin/mpirun --mca btl_tcp_if_exclude lo,docker0 -H a,b /opt/x", {}, {}),
    (TRAIN, {}, {"RestrictAddressFamilies": "AF_UNIX AF_INET AF_NETLINK"}),
    ("/opt/serve", {}, {"RestrictAddressFamilies": "AF_UNIX AF_INET"}),
    (TRAIN, {"/etc/hosts": "127.0.1.1 node1\n10.0.0.1 node0\n"}, {}),
    (ALONE.replace("node0", "localhost"), {"/etc/hosts": "127.0.0.1 localhost\n"}, {}),
    ("/opt/bin/vllm serve m -tp 2 --distributed-executor-backend ray", {}, {}),
    ("/opt/bin/ray start --block --address=10.0.0.1:6379", {}, {}),
    ("/opt/bin/ray start", {}, {"Type": "forking"}),
    ("/opt/bin/ray start", {}, {"RemainAfterExit": "yes"}),
    ("/usr/bin/docker run --rm vllm/vllm-openai", {}, {}),
    ("/usr/bin/docker run --rm vllm/vllm-openai --model m -dp 2", {}, {}),
    ("/opt/bin/ray job submit -- python start", {}, {}),
    ("/opt/bin/exporter --address=node0:9100", {"/etc/hosts": "127.0.1.1 node0\n"}, {}),
    (RUN_KUBELET, {KUBELET: "containerRuntimeEndpoint: unix:///run/cri-dockerd.sock\n",
                   CONTAINERD: f"{RUNC}true\n"}, {}),
    ("/opt/serve", {}, {"NUMAMask": "0-1"}),
    ("/usr/bin/dcgm-exporter -r 10.0.0.1:5555", {}, {}),
    ("/usr/bin/dcgm-exporter --address :9400", {}, {}),
    ("/usr/sbin/slurmd -D", {"/etc/slurm/slurm.conf": "AuthType=auth/slurm\n"}, {}),
    ("/usr/bin/nv-fabricmanager", {}, {"ConditionPathExists": "/dev/nvidia-nvswitch0"}),
    ("/opt/serve", {"/usr/bin/apptainer": "", SETUID: "", **NO_NAMESPACES}, {}),
    ("/opt/serve", {"/usr/bin/apptainer": ""}, {}),
    ("/opt/serve", {}, {"StandardOutput": "append:/dev/console"}),
    ("/opt/setup", {}, {"StandardOutput": "append:/var/log/setup.log", "Type": "oneshot"}),
    ("/opt/serve", {"/usr/sbin/logrotate": "", "/etc/logrotate.d/serve": "/var/log/*.log {\n}\n"},
     {"StandardOutput": "append:/var/log/serve.log"}),
    ("/opt/serve", {"/etc/fstab": MODELS}, {"StandardOutput": "append:/models/log/serve.log"}),
    ("/usr/bin/flm pull m", {"/etc/fstab": MODELS}, {"Environment": "FLM_MODEL_PATH=/models/flm"}),
    ("/usr/bin/curl -o /var/lib/list.json https://example.org/list.json", {}, {}),
    ("/opt/serve", {"/etc/enroot/enroot.conf": ENROOT}, {}),
    ("/opt/serve", {"/usr/bin/enroot": "", "/etc/enroot/enroot.conf": ENROOT,
                    "/etc/fstab": "LABEL=data /tmp ext4 nofail 0 0\n"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("command", "files", "values", "said"), FAULTS)
def test_what_does_not_work(
    command: str, files: dict[str, Content], values: dict[str, str], said: str, tmp_path: Path
) -> None:
    found = said_of(tmp_path, command, files, values)
    assert [said in what for level, what in found if level is Level.FAULT] == [True], found


@pytest.mark.parametrize(("command", "files", "values", "said"), WARNINGS)
def test_what_some_nodes_lack(
    command: str, files: dict[str, Content], values: dict[str, str], said: str, tmp_path: Path
) -> None:
    found = said_of(tmp_path, command, files, values)
    assert [(level, said in what) for level, what in found] == [(Level.WARNING, True)], found


@pytest.mark.parametrize(("command", "files", "values"), RIGHT)
def test_what_works(
    command: str, files: dict[str, Content], values: dict[str, str], tmp_path: Path
) -> None:
    assert said_of(tmp_path, command, files, values) == []


def test_jobs_on_a_node_with_an_npu(tmp_path: Path) -> None:
    """What limits.d says is for logins, and an NPU's buffers are locked."""
    for limit, many in (({}, 1), ({"LimitMEMLOCK": (str((1 << 64) - 1),)}, 0)):
        values = {"Unit Load State": ("loaded",), **limit}
        daemon = LoadedUnit("slurmd.service", (UNIT,), values, {"ExecStart": (("slurmd", "-D"),)})
        startup = Startup(frozenset((daemon.name,)), {}, {daemon.name: daemon}, ())
        for hardware in ([NPU], [GEFORCE]):
            found = list(
                prove_slurm(running(subject(make_tree(tmp_path, {}), hardware=hardware), startup))
            )
            assert ["too little for the NPU" in each.what for each in found] == (
                [True] * many if hardware == [NPU] else []
            )


def test_two_programs_that_set_the_clock(tmp_path: Path) -> None:
    def service(name: str, program: str, conflicts: str = "") -> LoadedUnit:
        values = {"Unit Load State": ("loaded",), "Conflicts": (conflicts,)}
        return LoadedUnit(name, (f"/etc/{name}",), values, {"ExecStart": ((program,),)})

    timesyncd = service("systemd-timesyncd.service", "/usr/lib/systemd/systemd-timesyncd")
    for conflicts, many in (("", 1), ("systemd-timesyncd.service", 0)):
        chrony = service("chrony.service", "/usr/sbin/chronyd", conflicts)
        units = {unit.name: unit for unit in (timesyncd, chrony)}
        startup = Startup(frozenset(units), {}, units, ())
        found = list(prove_clocks(running(subject(make_tree(tmp_path, {})), startup)))
        assert [each.level for each in found] == [Level.WARNING] * many
    alone = Startup(frozenset((chrony.name,)), {}, {chrony.name: chrony}, ())
    assert list(prove_clocks(running(subject(tmp_path), alone))) == []


SWAP: dict[str, Content] = {"/etc/fstab": "/dev/sda2 none swap sw 0 0\n"}


@pytest.mark.parametrize(
    ("command", "path", "text"),
    [
        (RUN_KUBELET, KUBELET, "failSwapOn: [false\n"),
        (RUN_KUBELET, KUBELET, b"# K\xf6ln\nfailSwapOn: false\n"),
        (RUN_KUBELET, KUBELET, "- failSwapOn: false\n"),
        (RUN_KUBELET, KUBELET, "failSwapOn: false\nfailSwapOn: false\n"),
        ("/usr/bin/k3s agent", K3S, "with-node-id: {true\n"),
    ],
)
def test_settings_that_cannot_be_read_are_not_those_of_an_empty_file(
    command: str, path: str, text: Content, tmp_path: Path
) -> None:
    said = said_of(tmp_path, command, {path: text, **SWAP}, {})
    (found,) = [what for _, what in said if path in what]
    assert "not start: " in found
    assert not any("the node swaps" in what or "is lost" in what for _, what in said)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_settings_that_say_nothing_are_the_defaults(text: str, tmp_path: Path) -> None:
    said = said_of(tmp_path, RUN_KUBELET, {KUBELET: text, **SWAP}, {})
    assert any("the node swaps" in what for _, what in said)


@pytest.mark.parametrize(
    ("command", "path"), [("/usr/bin/dockerd", DOCKER), ("/usr/bin/containerd", CONTAINERD)]
)
def test_where_an_engine_keeps_layers_is_not_guessed(
    command: str, path: str, tmp_path: Path
) -> None:
    assert said_of(tmp_path, command, {path: b"\xff["}, {}) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ClusterName=a\nNodeName n1 CPUs\n", 'slurm.conf has a line without "="'),
        ("ClusterName=a\nNodeName=n1 \\\n  CPUs=8\nInclude /etc/slurm/more.conf # x\n", ""),
    ],
)
def test_lines_that_slurm_cannot_parse(text: str, said: str, tmp_path: Path) -> None:
    found = said_of(tmp_path, "/usr/sbin/slurmd -D", {"/etc/slurm/slurm.conf": text}, {})
    assert [what for _, what in found if "line without" in what and said in what] or not said
    assert bool(said) == any("line without" in what for _, what in found)
