# SPDX-License-Identifier: Apache-2.0
"""Words and options that take something from every node, and the usual ones that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.proof.kernel.options import prove_words, size_of
from tests.unit.proof.trees import KERNEL, Info, kernel_files, make_tree, subject

ARC = ("8086:56a0", "Arc A770", "")
NPU_OF_FOUR = ("1022:1502", "XDNA NPU", "")
NPU_OF_EIGHT = ("1022:17f0", "XDNA 2 NPU", "")
RADEON = ("1002:7480", "Radeon RX 7600 XT", "gfx1102")
USUAL = (
    "ro", "quiet", "console=ttyS0,115200", "amd_iommu=on", "iommu=pt", "pci=realloc",
    "mem=nopentium", "pcie_aspm=off", "mitigations=off", "hugepages=64", "ip=dhcp",
    "amdgpu.ip_block_mask=0xffffffff",
    "ttm.pages_limit=25165824", "transparent_hugepage=always", "i915.force_probe=*",
    "mce=ignore_ce", "swiotlb=65536", "skew_tick=1", "nohz_full=2-7", "rcu_nocbs=2-7", "idle=poll",
    "processor.max_cstate=1", "nosmt", "amdgpu.lockup_timeout=30000",
    "amdgpu.gpu_recovery=1", "amdgpu.gpu_recovery=-1", "amdgpu.lockup_timeout=10000,0,-1,2000",
    "amdgpu.vis_vramlimit=16384",
)  # fmt: skip


def told(path: Path, *words: str) -> list[str]:
    return [found.what for found in prove_words(subject(path, hardware=[RADEON], cmdline=words))]


def test_usual_words_are_let_pass(tmp_path: Path) -> None:
    assert told(tmp_path, *USUAL) == []


@pytest.mark.parametrize(
    "word",
    ["pci=nomsi", "pci=realloc,off", "acpi=off", "nosmp", "ip=none", "mem=512M", "nomodule",
     "amdgpu.ip_block_mask=0x1", "ttm.pages_limit=1000", "amdgpu.dpm=0",
     "amdgpu.vramlimit=2048", "vfio-pci.ids=10de:1,1002:7480"],
)  # fmt: skip
def test_words_that_take_something(tmp_path: Path, word: str) -> None:
    (what,) = told(tmp_path, word)
    assert word.rpartition("=")[2] in what


@pytest.mark.parametrize(
    ("word", "level"),
    [("mce=off", Level.FAULT), ("nomce", Level.FAULT), ("swiotlb=force", Level.FAULT),
     ("swiotlb=512,force", Level.FAULT), ("noxsave", Level.FAULT), ("nopat", Level.WARNING),
     ("pci=noaer", Level.WARNING), ("pcie_aspm=force", Level.WARNING),
     ("hest_disable", Level.WARNING), ("amdgpu.lockup_timeout=10", Level.FAULT),
     ("amdgpu.lockup_timeout=10000,60", Level.FAULT), ("amdgpu.vis_vramlimit=256", Level.WARNING),
     ("amdgpu.gpu_recovery=0", Level.WARNING)],
)  # fmt: skip
def test_words_that_hide_errors_or_slow_a_card(tmp_path: Path, word: str, level: Level) -> None:
    (found,) = prove_words(subject(tmp_path, hardware=[RADEON], cmdline=(word,)))
    assert (found.level, word.rpartition("=")[2] in found.what) == (level, True)


@pytest.mark.parametrize(
    ("word", "level"),
    [("i915.lmem_bar_size=256", Level.WARNING), ("xe.vram_bar_size=-1", Level.WARNING),
     ("i915.request_timeout_ms=20", Level.FAULT), ("i915.lmem_bar_size=16384", None),
     ("i915.lmem_bar_size=0", None), ("xe.vram_bar_size=0", None),
     ("i915.request_timeout_ms=0", None), ("i915.reset=0", Level.WARNING), ("i915.reset=2", None),
     ("i915.enable_hangcheck=N", Level.WARNING), ("i915.enable_hangcheck=1", None),
     ("xe.wedged_mode=2", Level.WARNING), ("xe.wedged_mode=1", None)],
)  # fmt: skip
def test_options_of_an_arc_card(tmp_path: Path, word: str, level: Level | None) -> None:
    found = list(prove_words(subject(tmp_path, hardware=[ARC], cmdline=(word,))))
    assert [each.level for each in found] == ([level] if level else [])


@pytest.mark.parametrize(
    ("card", "word", "count"),
    [(NPU_OF_EIGHT, "amdxdna.aie2_max_col=4", 1), (NPU_OF_EIGHT, "amdxdna.aie2_max_col=8", 0),
     (NPU_OF_FOUR, "amdxdna.aie2_max_col=4", 0), (RADEON, "amdxdna.aie2_max_col=4", 0)],
)  # fmt: skip
def test_columns_of_an_npu(
    tmp_path: Path, card: tuple[str, str, str], word: str, count: int
) -> None:
    found = list(prove_words(subject(tmp_path, hardware=[card], cmdline=(word,))))
    assert [each.level for each in found] == [Level.WARNING] * count


@pytest.mark.parametrize(
    ("words", "level", "said"),
    [
        (["mem=512M"], Level.FAULT, "leaves the node too little memory"),
        (["mem=512G"], Level.WARNING, "hides all memory of a node beyond that"),
        (["mem=32G", "ttm.pages_limit=25165824"], Level.FAULT,
         "hides memory that ttm.pages_limit=25165824 promises to the graphics (96 GiB)"),
        (["mem=32G", "amdgpu.gttsize=65536"], Level.FAULT, "promises to the graphics (64 GiB)"),
        (["mem=128G", "ttm.pages_limit=25165824"], Level.WARNING, "beyond that"),
    ],
)  # fmt: skip
def test_memory_that_the_kernel_does_not_see(
    tmp_path: Path, words: list[str], level: Level, said: str
) -> None:
    (found,) = prove_words(subject(tmp_path, hardware=[RADEON], cmdline=tuple(words)))
    assert (found.level, said in found.what) == (level, True)


def test_options_of_other_drivers_do_not_matter(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/modprobe.d/a.conf": "options i915 enable_guc=0\n"})
    assert told(tmp_path, "amd_iommu=off") == []


def test_an_option_that_the_driver_does_not_have(tmp_path: Path) -> None:
    driver = {"parmtype": ["dpm:int", "runpm:int"]}
    make_tree(tmp_path, kernel_files({"kernel/amdgpu.ko.xz": driver}))
    assert told(tmp_path, "amdgpu.runpm=0") == []
    (what,) = told(tmp_path, "amdgpu.runpn=0")
    assert what == "amdgpu has no option runpn: the kernel ignores it"


def test_an_option_that_another_module_does_not_have(tmp_path: Path) -> None:
    modules: dict[str, Info] = {
        "kernel/ib_ipoib.ko.xz": {"parmtype": ["send_queue_size:int"]},
        "kernel/dummy.ko.xz": {},
        # An option without a type: its name is among the strings of the module alone.
        "kernel/lockd.ko.xz": {"parmtype": ["nsm_use_hostnames:bool"], "note": "nlm_tcpport"},
    }
    make_tree(tmp_path, kernel_files(modules))
    path = "/etc/modprobe.d/ib.conf"
    make_tree(tmp_path, {path: "options ib_ipoib ipoib_enhanced=0 send_queue_size=1 dyndbg=+p\n"})
    said = ["ib_ipoib has no option ipoib_enhanced: the kernel ignores it"]
    assert told(tmp_path, "dummy.numdummies=1", "lockd.nlm_tcpport=4045") == said
    assert told(tmp_path, "lockd.tcp_port=1")[-1:] == [
        "lockd has no option tcp_port: the kernel ignores it"
    ]
    given = subject(tmp_path)
    given.__dict__["shipped"] = {path: ShippedFile("rdma-core")}
    assert list(prove_words(given)) == []


@pytest.mark.parametrize(
    ("line", "word", "said"),
    [
        ("nv_peer_mem", "ro", "nv_peer_mem is not loaded"),
        ("nvidia-peermem", "ro", ""),
        ("tun", "ro", ""),
        ("8021q", "ro", "8021q is not loaded"),
        ("other-name", "ro", ""),
        ("# nv_peer_mem", "ro", ""),
        ("pci:v000010DEd*", "ro", ""),
        ("", "modules-load=nvidia_peermem,lost", "lost is not loaded"),
    ],
)
def test_modules_that_are_to_be_loaded(line: str, word: str, said: str, tmp_path: Path) -> None:
    files = kernel_files({"kernel/nvidia-peermem.ko.xz": {}})
    folder = f"/usr/lib/modules/{KERNEL}"
    files |= {
        "/etc/modules-load.d/site.conf": f"{line}\n",
        f"{folder}/modules.builtin": "kernel/drivers/net/tun.ko\n",
        f"{folder}/modules.alias": "alias other-name nvidia_peermem\n",
    }
    make_tree(tmp_path, files)
    found = told(tmp_path, word)
    assert [each.partition(":")[0] for each in found] == ([said] if said else [])


@pytest.mark.parametrize(
    ("word", "is_said"),
    [
        ("crashkernel=auto", True),
        ("crashkernel=512M", False),
        ("crashkernel=1G-4G:192M,4G-:256M", False),
        ("transparent_hugepage=on", True),
        ("transparent_hugepage=madvise", False),
        ("numa_balancing=0", True),
        ("numa_balancing=disable", False),
        ("mitigations=none", True),
        ("mitigations=auto,nosmt", False),
    ],
)
def test_values_that_the_kernel_ignores(
    word: str,
    is_said: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    assert [each.partition(" ")[0] for each in told(tmp_path, word)] == [word] * is_said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("amdttm.pages_limit=9999999",), "amdttm.pages_limit does nothing"),
        (("ttm.pages_limit=9999999",), ""),
        # What is set for both names does what it should.
        (("amdttm.pages_limit=9999999", "ttm.pages_limit=9999999"), ""),
        (("radeon.dpm=1",), "radeon.dpm does nothing"),
        (("radeon.dpm=1", "amdgpu.dpm=1"), ""),
        # Of what is no driver nothing is known.
        (("nouveau.modeset=0", "systemd.pages_limit=1", "i2c_core.dpm=1"), ""),
    ],
)
def test_an_option_of_a_module_that_has_another_name_here(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    modules: dict[str, Info] = {
        "kernel/amdgpu.ko.xz": {"parmtype": ["dpm:int"]},
        "kernel/ttm.ko.xz": {"parmtype": ["pages_limit:ulong"]},
        "kernel/systemd.ko.xz": {},
        "kernel/i2c-core.ko.xz": {"parmtype": ["dpm:int"]},
    }
    needs = {"kernel/amdgpu.ko.xz": ["kernel/ttm.ko.xz"]}
    make_tree(tmp_path, kernel_files(modules, needs=needs))
    found = told(tmp_path, *words)
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ip=eth0:dhcp",), "udev has renamed eth0 by then"),
        (("ip=10.0.0.2::10.0.0.1:255.255.255.0:n1:eth1:none",), "udev has renamed eth1"),
        (("ip=dhcp", "bootdev=eth0"), "bootdev=eth0 on the command line"),
        (("net.ifnames=0", "ip=eth0:dhcp"), ""),
        (("ifname=eth0:52:54:00:00:00:01", "ip=eth0:dhcp", "bootdev=eth0"), ""),
        (("ip=enp1s0:dhcp",), ""),
        (("ip=10.0.0.2::10.0.0.1:255.255.255.0:eth0::none",), ""),
    ],
)
def test_nics_by_a_name_that_changes(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    found = told(tmp_path, *words)
    assert [said in what for what in found] == ([True] if said else [])


def test_sizes() -> None:
    assert [size_of(text) for text in ("512M", "2G", "1024", "x")] == [512 << 20, 2 << 30, 1024, 0]


@pytest.mark.parametrize(
    ("option", "level"),
    [
        ("ppfeaturemask=fff73fff", Level.FAULT),
        ("ppfeaturemask=0xfff73fff", None),
        ("ppfeaturemask=4294393855", None),
        ("runpm=on", Level.FAULT),
        ("async=maybe", Level.WARNING),
        ("async=Y", None),
        ("name=anything", None),
    ],
)
def test_values_that_the_kernel_refuses(option: str, level: Level | None, tmp_path: Path) -> None:
    types = ["ppfeaturemask:hexint", "runpm:int", "async:bool", "name:charp"]
    files = kernel_files({"kernel/site.ko.xz": {"parmtype": types}})
    files = {**files, "/etc/modprobe.d/site.conf": f"options site {option}\n"}
    asked = subject(make_tree(tmp_path, files))
    asked.__dict__["shipped"] = {}
    found = [each.level for each in prove_words(asked) if " load site: " in each.what]
    assert found == ([level] if level else [])
