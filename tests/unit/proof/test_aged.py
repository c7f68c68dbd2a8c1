# SPDX-License-Identifier: Apache-2.0
"""Images that were right once: parts that have moved on, and what still counts on the old ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.proof.clusters.peers import prove_managers
from imagebuilder.proof.clusters.slurm import prove_plugins
from imagebuilder.proof.kernel.options import prove_governor
from imagebuilder.proof.python.installed import prove_requires, prove_search
from imagebuilder.proof.reading.python import Distribution, site_packages
from imagebuilder.proof.reading.scripts import SiteService
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.services.containers import prove_containers
from imagebuilder.proof.services.start import is_there
from imagebuilder.proof.system.files.authorities import ends_of
from imagebuilder.proof.system.files.mounts import prove_mounts
from imagebuilder.proof.system.files.unread import prove_read
from imagebuilder.proof.system.network.nic import prove_order
from tests.unit.proof.trees import KERNEL, Content, Link, Program, make_tree, running, subject

SITE = "/opt/vllm/lib/python3.13/site-packages"
PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
LINKS = "/etc/systemd/network"
EVERY = "[Match]\nType=ether\n\n[Link]\n"


def whats(found: list[Finding]) -> list[str]:
    return [each.what for each in found]


def service(name: str, *words: str) -> LoadedUnit:
    path = f"/etc/systemd/system/{name}"
    return LoadedUnit(name, (path,), {"Unit Load State": ("loaded",)}, {"ExecStart": (words,)})


def starts(*units: LoadedUnit, jobs: tuple[str, ...] = ()) -> Startup:
    names = frozenset((*(unit.name for unit in units), *jobs))
    return Startup(names, {}, {unit.name: unit for unit in units}, ())


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/opt/new", True),
        ("/opt/cuda", False),
        ("/opt/chain", False),
        ("/opt/cuda/bin", False),
        ("/opt/boot", True),
        ("/opt/models", True),
        ("/opt/circle", False),
        ("/opt/none", False),
    ],
)
def test_a_link_that_leads_nowhere_is_nothing(path: str, there: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {
        "/opt/new/": "",
        "/opt/cuda": Link("/opt/old"),
        "/opt/chain": Link("cuda"),
        "/opt/boot": Link("/run/made"),
        "/opt/models": Link("/models/cuda"),
        "/opt/circle": Link("circle"),
        "/etc/systemd/system/models.mount": "[Mount]\nWhere=/models\n",
    }
    assert is_there(subject(make_tree(tmp_path, files)), path) == there


@pytest.mark.parametrize(
    ("setting", "missing"),
    [
        ("SelectType=select/cons_res", "select_cons_res.so"),
        ("TaskPlugin=task/affinity,task/cgroup", "task_affinity.so"),
        ("SelectType=select/cons_tres", ""),
        ("TaskPlugin=task/cgroup", ""),
        ("JobAcctGatherType=jobacct_gather/cgroups", "jobacct_gather_cgroups.so"),
        # Without a file in newer releases; of the controller alone.
        ("TaskPlugin=task/none", ""),
        ("JobCompType=jobcomp/elasticsearch", ""),
        ("MailProg=/usr/bin/mail", ""),
        ("StateSaveLocation=var/spool", ""),
    ],
)
def test_plugins_that_slurm_does_not_have(setting: str, missing: str, tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/etc/slurm/slurm.conf": f"ClusterName=a\n{setting}\n",
        f"{PLUGINS}/select_cons_tres.so": "",
        f"{PLUGINS}/task_cgroup.so": "",
        f"{PLUGINS}/jobacct_gather_cgroup.so": "",
        f"{PLUGINS}/jobcomp_script.so": "",
    }
    given = subject(make_tree(tmp_path, files))
    daemon = SiteService(given, service("slurmd.service"), ("/usr/sbin/slurmd",))
    found = whats(list(prove_plugins(given.root, daemon)))
    assert [missing in what for what in found] == ([True] if missing else [])


def test_plugins_of_slurm_elsewhere_are_not_judged(tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {"/etc/slurm/slurm.conf": "SelectType=select/own\n"}))
    daemon = SiteService(given, service("slurmd.service"), ("/usr/sbin/slurmd",))
    assert list(prove_plugins(given.root, daemon)) == []


@pytest.mark.parametrize(
    ("settings", "jobs", "many"),
    [
        ("[main]\nplugins=keyfile\n", ("systemd-networkd.service",), 1),
        ("[main]\nplugins=keyfile\n", (), 0),
        ("[keyfile]\nunmanaged-devices=type:ethernet\n", ("systemd-networkd.service",), 0),
        ("[device]\nmanaged=0\n", ("systemd-networkd.service",), 0),
        ("[device-eth]\nmatch-device=type:ethernet\nmanaged=0\n", ("systemd-networkd.service",), 0),
        (
            "[main]\nplugins=ifupdown\n\n[ifupdown]\nmanaged=false\n",
            ("systemd-networkd.service",),
            1,
        ),
    ],
)
def test_two_managers_of_the_network(
    settings: str, jobs: tuple[str, ...], many: int, tmp_path: Path
) -> None:
    given = subject(make_tree(tmp_path, {"/etc/NetworkManager/NetworkManager.conf": settings}))
    given.__dict__["shipped"] = {}
    manager = service("NetworkManager.service", "/usr/sbin/NetworkManager", "--no-daemon")
    found = list(prove_managers(running(given, starts(manager, jobs=jobs))))
    assert [each.level for each in found] == [Level.WARNING] * many


@pytest.mark.parametrize(
    ("options", "config", "many"),
    [
        ("proto=udp", "CONFIG_NFS_DISABLE_UDP_SUPPORT=y\n", 1),
        ("udp", "CONFIG_NFS_DISABLE_UDP_SUPPORT=y\n", 1),
        ("proto=udp", "# CONFIG_NFS_DISABLE_UDP_SUPPORT is not set\n", 0),
        ("proto=tcp", "CONFIG_NFS_DISABLE_UDP_SUPPORT=y\n", 0),
    ],
)
def test_nfs_over_udp(options: str, config: str, many: int, tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/etc/fstab": f"nas:/a /a nfs nofail,{options} 0 0\n",
        "/usr/sbin/mount.nfs": Program(),
        f"/boot/config-{KERNEL}": config,
    }
    given = subject(make_tree(tmp_path, files))
    given.__dict__["shipped"] = {}
    found = [what for what in whats(list(prove_mounts(given))) if "over UDP" in what]
    assert len(found) == many


@pytest.mark.parametrize(
    ("words", "many"),
    [
        (("cpufreq.default_governor=powersave", "amd_pstate=disable"), 1),
        (("cpufreq.default_governor=powersave", "intel_pstate=passive"), 1),
        (("cpufreq.default_governor=powersave", "amd_pstate=active"), 0),
        (("cpufreq.default_governor=powersave",), 0),
        (("cpufreq.default_governor=performance", "amd_pstate=disable"), 0),
    ],
)
def test_the_lowest_clock_for_good(words: tuple[str, ...], many: int, tmp_path: Path) -> None:
    assert len(list(prove_governor(subject(tmp_path, cmdline=words)))) == many


@pytest.mark.parametrize(
    ("files", "lost"),
    [
        ({"50-a.link": f"{EVERY}RxBufferSize=max\n", "90-b.link": f"{EVERY}WakeOnLan=magic\n"},
         "WakeOnLan"),
        ({"50-a.link": f"{EVERY}WakeOnLan=magic\n", "90-b.link": f"{EVERY}WakeOnLan=magic\n"}, ""),
        ({"50-a.link": f"{EVERY}MTUBytes=9000\n", "90-b.link":
          "[Match]\nDriver=mlx5_core\n[Link]\nWakeOnLan=magic\n"}, ""),
        ({"50-a.link": "[Match]\nMACAddress=02:00:00:00:00:01\n[Link]\nMTUBytes=9000\n",
          "90-b.link": f"{EVERY}WakeOnLan=magic\n"}, ""),
    ],
)  # fmt: skip
def test_settings_of_a_later_link_file(files: dict[str, str], lost: str, tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {f"{LINKS}/{name}": text for name, text in files.items()}))
    found = whats(list(prove_order(given.root)))
    assert [f"{LINKS}/90-b.link has no effect" in what and lost in what for what in found] == (
        [True] if lost else []
    )


@pytest.mark.parametrize("many", [0, 1])
def test_scripts_of_ifupdown(many: int, tmp_path: Path) -> None:
    files: dict[str, Content] = {"/etc/network/if-up.d/route": Program()}
    if not many:
        files["/usr/sbin/ifup"] = Program()
    given = subject(make_tree(tmp_path, files))
    given.__dict__["shipped"] = {}
    found = whats(list(prove_read(running(given, starts()))))
    assert found == ["/etc/network/if-up.d/route never runs: the image has no ifupdown"] * many


def test_a_file_that_a_unit_is_told_of_is_read(tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {"/etc/iptables/rules.v4": "*filter\nCOMMIT\n"}))
    given.__dict__["shipped"] = {}
    assert len(list(prove_read(running(given, starts())))) == 1
    filter_ = service("a.service", "/usr/sbin/iptables-restore", "/etc/iptables/rules.v4")
    assert list(prove_read(running(given, starts(filter_)))) == []


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ("numpy<2.3,>=1.24", "numba 0.61.2 needs numpy <2.3,>=1.24, but 2.4.1 is installed"),
        ("NumPy>=2", ""),
        ("numpy<2; python_version < '3.10'", ""),
        ("numpy<2; extra == 'old'", ""),
        ("numpy<2; sys_platform == 'win32'", ""),
        ("absent>=1", ""),
        ("numpy (<2", ""),
        ("numpy<2; nonsense == '1'", ""),
        (f"numpy{'<' * 2000}", ""),
    ],
)
def test_versions_that_do_not_fit_each_other(requires: str, said: str) -> None:
    present = {
        "numba": Distribution(
            "numba", "0.61.2", f"{SITE}/numba", record=True, requires=(requires,)
        ),
        "numpy": Distribution("numpy", "2.4.1", f"{SITE}/numpy", record=True),
    }
    found = whats(list(prove_requires(present, "python3.13")))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("line", "many"),
    [
        ("/opt/vllm/lib/python3.11/site-packages", 1),
        ("import sys; sys.path.insert(0, '/opt/vllm/lib/python3.11/site-packages')", 1),
        ("/opt/gone/lib/python3.11/site-packages", 0),
        ("/opt/vllm/lib/python3.13/site-packages/cutlass", 0),
    ],
)
def test_packages_of_another_python(line: str, many: int, tmp_path: Path) -> None:
    old = "/opt/vllm/lib/python3.11/site-packages/"
    files: dict[str, Content] = {f"{SITE}/a.pth": f"{line}\n", f"{SITE}/cutlass/": "", old: ""}
    assert len(list(prove_search(subject(make_tree(tmp_path, files)).root, SITE))) == many


def test_packages_of_the_interpreter_count_beside_older_ones(tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/opt/vllm/lib/python3.11/site-packages/": "",
        f"{SITE}/": "",
        "/opt/vllm/bin/python": Link("/usr/bin/python3.13"),
        "/usr/bin/python3.13": Program(),
    }
    assert site_packages(subject(make_tree(tmp_path, files)).root, "/opt/vllm") == SITE


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("/etc/containerd/config.toml",
         "version = 3\n[plugins.'io.containerd.grpc.v1.cri']\na = 1\n", "containerd ignores"),
        ("/etc/containerd/config.toml",
         "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\na = 1\n", ""),
        ("/etc/containerd/config.toml",
         "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\na = 1\n", ""),
        ("/etc/nvidia-container-runtime/config.toml",
         "[nvidia-container-cli]\nldconfig = '@/sbin/ldconfig.real'\n",
         "names /sbin/ldconfig.real"),
        ("/etc/nvidia-container-runtime/config.toml",
         "[nvidia-container-cli]\nldconfig = '@/sbin/ldconfig'\n", ""),
    ],
)  # fmt: skip
def test_settings_of_containers_as_they_were(
    path: str, text: str, said: str, tmp_path: Path
) -> None:
    unit = "[Service]\nExecStart=/usr/bin/dockerd\n"
    files: dict[str, Content] = {
        path: text,
        "/sbin/ldconfig": Program(),
        "/etc/systemd/system/docker.service": unit,
        "/usr/bin/dockerd": Program(),
    }
    found = whats(list(prove_containers(subject(make_tree(tmp_path, files)))))
    assert [said in what for what in found] == ([True] if said else [])


def test_when_an_authority_expires(tmp_path: Path) -> None:
    made = []
    for days in ("10", "20"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={days}",
             "-days", days, "-keyout", tmp_path / "key", "-out", tmp_path / "crt"],
            check=True, capture_output=True,
        )  # fmt: skip
        made.append((tmp_path / "crt").read_text())
    first, second = ends_of("".join(made))
    assert second - first == pytest.approx(10 * 24 * 3600, abs=60)
    assert ends_of(made[0][:300]) == []
    assert ends_of("no certificate") == []
