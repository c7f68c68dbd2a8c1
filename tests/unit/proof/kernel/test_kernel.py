# SPDX-License-Identifier: Apache-2.0
"""Question 1 on small trees: each fault is planted and found, the good tree has none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.image.proof import Finding
from imagebuilder.process import Completed
from imagebuilder.proof.kernel.prove import prove_kernel
from imagebuilder.proof.reading.modules import Kernel, Module, ModuleReader, read_module
from imagebuilder.proof.reading.parameters import read_settings
from imagebuilder.recipe.cards import find_chip
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.types import Hardware
from tests.unit.proof.trees import (
    KERNEL,
    Content,
    Info,
    Link,
    Program,
    Sandbox,
    facts,
    faults,
    kernel_files,
    make_module,
    make_tree,
    make_vmlinuz,
    subject,
    warnings,
)

FOLDER = f"/usr/lib/modules/{KERNEL}"
AMDGPU = "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.xz"
TTM = "kernel/drivers/gpu/drm/ttm/ttm.ko.xz"
NVIDIA = "updates/dkms/nvidia.ko.xz"
UVM = "updates/dkms/nvidia-uvm.ko.xz"
NOUVEAU = "kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz"
RADEON = ("1002:7480", "Radeon RX 7600 XT", "gfx1102")
L40S = ("10de:26b9", "L40S", "sm_89")
BLACKLIST = "/etc/modprobe.d/blacklist.conf"
MODULES: dict[str, Info] = {
    AMDGPU: {"alias": "pci:v00001002d*sv*sd*bc03sc00i00*"},
    TTM: {},
    NOUVEAU: {"alias": "pci:v000010DEd*sv*sd*bc03sc*i*"},
    NVIDIA: {"alias": "pci:v000010DEd*sv*sd*bc03sc02i00*", "version": "550.163.01"},
    UVM: {},
}


def make(path: Path, modules: Mapping[str, Info] = MODULES) -> Path:
    """A root with a kernel and modules for a Radeon and an NVIDIA card; nouveau is blocked."""
    needs = {AMDGPU: [TTM]} if TTM in modules else {}
    make_tree(path, kernel_files(modules, needs=needs))
    make_tree(path, {BLACKLIST: "blacklist nouveau\n"})
    return path


def prove(path: Path, *hardware: tuple[str, str, str], **rest: Any) -> list[Finding]:  # noqa: ANN401 - fields of Subject
    """The findings about a root."""
    return list(prove_kernel(subject(path, hardware=hardware, **rest)))


def test_a_good_tree_has_no_fault(tmp_path: Path) -> None:
    expected = Expectations(modules=("amdgpu", "nvidia-uvm", "loop"))
    found = prove(make(tmp_path), RADEON, L40S, expectations=expected)
    assert len(found) == len(set(facts(found)))
    assert faults(found) == []
    assert warnings(found) == []
    said = facts(found)
    assert f"one kernel, {KERNEL}" in said
    assert f"5 modules built for {KERNEL}" in said
    assert "amdgpu claims 1002:7480 (Radeon RX 7600 XT)" in said
    assert "nvidia claims 10de:26b9 (L40S)" in said
    assert "nouveau is blocked from 10de:26b9 (L40S)" in said
    assert "modules that programs need can be loaded: nvidia_uvm, amdgpu, loop" in said
    assert any("2 modules from outside the kernel's tree not signed" in fact for fact in said)


def test_the_kernel_says_itself_which_it_is(tmp_path: Path) -> None:
    make(tmp_path)
    assert prove(tmp_path)[0].evidence[0].said.startswith(f"{KERNEL} (somebody")
    make_tree(tmp_path, {f"{FOLDER}/vmlinuz": make_vmlinuz("6.1.0-9-amd64")})
    assert faults(prove(tmp_path)) == [
        f"{FOLDER}/vmlinuz is the kernel 6.1.0-9-amd64, not {KERNEL}"
    ]


def test_an_image_without_a_kernel_raises_no_question(tmp_path: Path) -> None:
    assert prove(tmp_path, kernel="") == []


def test_modules_of_another_kernel_beside(tmp_path: Path) -> None:
    make_tree(make(tmp_path), {"/usr/lib/modules/6.1.0-9-amd64/updates/dkms/nvidia.ko": b"x"})
    [fault] = faults(prove(tmp_path))
    assert fault == f"the image boots {KERNEL}, but also has 6.1.0-9-amd64"


def test_an_empty_folder_of_another_kernel_is_no_kernel(tmp_path: Path) -> None:
    make_tree(make(tmp_path), {"/usr/lib/modules/6.1.0-9-amd64/": ""})
    assert faults(prove(tmp_path)) == []


def test_a_second_vmlinuz(tmp_path: Path) -> None:
    make_tree(make(tmp_path), {"/boot/vmlinuz-6.1.0-9-amd64": make_vmlinuz("6.1.0-9-amd64")})
    [fault] = faults(prove(tmp_path))
    assert "/boot/vmlinuz-6.1.0-9-amd64" in fault


def test_modules_of_only_another_kernel(tmp_path: Path) -> None:
    make_tree(tmp_path, kernel_files(MODULES, release="6.1.0-9-amd64"))
    [fault] = faults(prove(tmp_path))
    assert fault == f"the image boots {KERNEL}, but does not have its modules; it has 6.1.0-9-amd64"


def test_no_vmlinuz(tmp_path: Path) -> None:
    (make(tmp_path) / FOLDER.strip("/") / "vmlinuz").unlink()
    assert faults(prove(tmp_path)) == [f"the image has no vmlinuz of {KERNEL}"]
    make_tree(tmp_path, {f"/boot/vmlinuz-{KERNEL}": make_vmlinuz()})
    assert faults(prove(tmp_path)) == []


@pytest.mark.parametrize("ending", ["", ".xz", ".zst", ".gz"])
def test_every_packing_is_read(tmp_path: Path, ending: str) -> None:
    files = kernel_files({f"updates/x.ko{ending}": {}}, built_for="6.1.0-9-amd64")
    [fault] = faults(prove(make_tree(tmp_path, files).path))
    assert "1 module built for the kernel 6.1.0-9-amd64" in fault
    assert f"updates/x.ko{ending}" in fault


def test_one_module_of_the_tree_with_another_vermagic(tmp_path: Path) -> None:
    plain = make_module(release="7.2.6+deb14-rt-amd64")
    make_tree(make(tmp_path), {f"{FOLDER}/kernel/fs/ext4/ext4.ko": plain})
    dep = tmp_path / FOLDER.strip("/") / "modules.dep"
    dep.write_text(dep.read_text() + "kernel/fs/ext4/ext4.ko:\n")
    [found] = [finding for finding in prove(tmp_path) if finding.hint]
    assert "7.2.6+deb14-rt-amd64" in found.what
    assert found.evidence[0].section == ".modinfo"
    assert found.evidence[0].symbol == "vermagic"


def shipped_by(package: str, sums: str) -> dict[str, str]:
    """What dpkg records of a package with these md5sums."""
    listed = "".join(f"/{line.partition('  ')[2]}\n" for line in sums.splitlines())
    info = f"/var/lib/dpkg/info/{package}"
    return {f"{info}.md5sums": sums, f"{info}.list": f"/.\n{listed}"}


def test_what_the_kernels_package_shipped_is_not_read(tmp_path: Path) -> None:
    many: dict[str, Info] = {f"kernel/m{number}.ko": {} for number in range(100)}
    files = kernel_files(many)
    make_tree(tmp_path, files)
    sums = "".join(
        f"{hashlib.md5(content).hexdigest()}  {path.strip('/')}\n"
        for path, content in files.items()
        if isinstance(content, bytes)
    )
    make_tree(tmp_path, shipped_by(f"linux-modules-{KERNEL}", sums))
    said = facts(prove(tmp_path))
    assert any("91 identical" in fact for fact in said), said
    # One that was changed afterwards is read, although the package had one of that name.
    other = make_module(release="6.1.0-9-amd64")
    make_tree(tmp_path, {f"{FOLDER}/kernel/m57.ko": other})
    [fault] = faults(prove(tmp_path))
    assert "kernel/m57.ko" in fault


def test_md5sums_of_another_package_prove_nothing(tmp_path: Path) -> None:
    files = kernel_files({"kernel/nvidia.ko": {}}, built_for="6.1.0-9-amd64")
    make_tree(tmp_path, files)
    content = files[f"{FOLDER}/kernel/nvidia.ko"]
    assert isinstance(content, bytes)
    sums = f"{hashlib.md5(content).hexdigest()}  usr/lib/modules/{KERNEL}/kernel/nvidia.ko\n"
    make_tree(tmp_path, shipped_by(f"linux-modules-nvidia-570-{KERNEL}", sums))
    assert len(faults(prove(tmp_path))) == 1


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("x.ko.xz", b"\xfd7zXZ\0broken", "cannot be unpacked"),
        ("x.ko.zst", b"\x28\xb5\x2f\xfdbroken", "cannot be unpacked"),
        ("x.ko", b"no ELF", "is not an ELF file"),
        ("x.ko", b"", "is not an ELF file"),
    ],
)
def test_a_broken_module(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    make_tree(make(tmp_path), {f"{FOLDER}/updates/{name}": content})
    assert any(why in fault for fault in faults(prove(tmp_path)))


def test_modules_dep_names_what_is_gone(tmp_path: Path) -> None:
    (make(tmp_path) / FOLDER.strip("/") / TTM).unlink()
    found = faults(prove(tmp_path, RADEON))
    assert found == [f"{FOLDER}/{TTM} is missing, but amdgpu needs it"]
    (tmp_path / FOLDER.strip("/") / AMDGPU).unlink()
    assert f"modules.dep lists 2 missing modules: {FOLDER}/{AMDGPU}, {FOLDER}/{TTM}" in faults(
        prove(tmp_path)
    )


def test_modules_dep_does_not_know_what_is_there(tmp_path: Path) -> None:
    make_tree(make(tmp_path), {f"{FOLDER}/updates/dkms/late.ko": make_module()})
    [fault] = faults(prove(tmp_path))
    assert fault.startswith(f"modules.dep does not list {FOLDER}/updates/dkms/late.ko")


def test_depmod_never_ran(tmp_path: Path) -> None:
    (make(tmp_path) / FOLDER.strip("/") / "modules.dep").unlink()
    assert "modules.dep is missing or empty: modprobe cannot find any module" in faults(
        prove(tmp_path)
    )


def test_the_driver_is_not_there(tmp_path: Path) -> None:
    make(tmp_path, {TTM: {}})
    [fault] = faults(prove(tmp_path, RADEON))
    assert fault.startswith("the module amdgpu, which drives 1002:7480 (Radeon RX 7600 XT)")


def test_the_driver_does_not_know_the_device(tmp_path: Path) -> None:
    info = {"alias": "pci:v00008086d000056A1sv*sd*bc03sc*i*"}
    make(tmp_path, {"kernel/i915.ko": info})
    [fault] = faults(prove(tmp_path, ("8086:56a0", "Arc A770", "dg2")))
    assert fault == "i915 is in the image, but does not claim 8086:56a0 (Arc A770)"


def test_one_of_two_drivers_is_enough(tmp_path: Path) -> None:
    info = {"alias": "pci:v00008086d000056A0sv*sd*bc03sc*i*"}
    make(tmp_path, {"kernel/i915.ko": info, "kernel/xe.ko": info})
    make_tree(tmp_path, {"/etc/modprobe.d/xe.conf": "blacklist xe"})
    assert faults(prove(tmp_path, ("8086:56a0", "Arc A770", "dg2"))) == []
    make_tree(tmp_path, {"/etc/modprobe.d/i915.conf": "blacklist i915"})
    assert faults(prove(tmp_path, ("8086:56a0", "Arc A770", "dg2"))) == [
        "i915, xe would drive 8086:56a0 (Arc A770), but is blocked"
    ]


def test_a_driver_that_is_built_in(tmp_path: Path) -> None:
    make(tmp_path, {TTM: {}})
    entry = b"amdgpu.alias=pci:v00001002d*sv*sd*bc03sc00i00*\0amdgpu.license=GPL\0"
    builtin = f"{FOLDER}/modules.builtin"
    make_tree(tmp_path, {builtin: f"{AMDGPU}\n", f"{builtin}.modinfo": entry})
    assert faults(prove(tmp_path, RADEON)) == []


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/modprobe.d/a.conf": "blacklist amdgpu"},
        {"/usr/lib/modprobe.d/a.conf": "# no\n  blacklist   amdgpu # not here"},
        {"/etc/modprobe.d/a.conf": "install amdgpu /bin/false"},
        {"/etc/modprobe.d/a.conf": "install ttm \\\n /usr/bin/true"},
        {"/etc/modprobe.d/a.conf": "options amdgpu modeset=0"},
        {"/etc/modprobe.d/a.conf": Link("../nvidia/b"), "/etc/nvidia/b": "blacklist amdgpu"},
    ],
)
def test_a_blacklist_that_hits_the_driver(tmp_path: Path, files: dict[str, str | Link]) -> None:
    make_tree(make(tmp_path), dict(files))
    expected = Expectations(modules=("amdgpu",))
    [fault] = faults(prove(tmp_path, RADEON, expectations=expected))
    assert fault == "amdgpu would drive 1002:7480 (Radeon RX 7600 XT), but is blocked"


@pytest.mark.parametrize(
    "word",
    ["modprobe.blacklist=foo,amdgpu", "module_blacklist=ttm", "nomodeset", "amdgpu.modeset=0"],
)
def test_a_command_line_that_hits_the_driver(tmp_path: Path, word: str) -> None:
    [finding] = [f for f in prove(make(tmp_path), RADEON, cmdline=("quiet", word)) if f.hint]
    assert finding.what.endswith("but is blocked")
    assert finding.evidence[0].said == word


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/modprobe.d/a.conf": "blacklist amdgpux\ninstall foo /bin/false"},
        {"/etc/modprobe.d/a.txt": "blacklist amdgpu"},
        # Of two files of one name the one in /etc counts.
        {"/etc/modprobe.d/a.conf": "", "/usr/lib/modprobe.d/a.conf": "blacklist amdgpu"},
        # A blacklist is about what devices ask for, not about what a module needs.
        {"/etc/modprobe.d/a.conf": "blacklist ttm"},
        {"/etc/modprobe.d/a.conf": "install amdgpu modprobe -i amdgpu $CMDLINE_OPTS"},
    ],
)
def test_a_blacklist_that_does_not_hit(tmp_path: Path, files: dict[str, str]) -> None:
    make_tree(make(tmp_path), dict(files))
    assert faults(prove(tmp_path, RADEON)) == []


def test_nouveau_is_not_kept_off(tmp_path: Path) -> None:
    (make(tmp_path) / BLACKLIST.strip("/")).unlink()
    [fault] = faults(prove(tmp_path, L40S))
    assert fault == "nouveau may claim 10de:26b9 (L40S) before NVIDIA's driver"
    assert faults(prove(tmp_path, L40S, cmdline=("modprobe.blacklist=nouveau",))) == []


def test_cuda_needs_nvidia_uvm(tmp_path: Path) -> None:
    make(tmp_path, {path: info for path, info in MODULES.items() if path != UVM})
    assert faults(prove(tmp_path, L40S)) == [
        "the module nvidia_uvm is needed, but is not in the image"
    ]


def test_debian_renames_the_modules_of_nvidia(tmp_path: Path) -> None:
    alias = {"alias": "pci:v000010DEd*sv*sd*bc03sc02i00*"}
    make(tmp_path, {"updates/dkms/nvidia-current.ko": alias,
                    "updates/dkms/nvidia-current-uvm.ko": {}})  # fmt: skip
    assert len(faults(prove(tmp_path, L40S))) == 1
    rules = "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n"
    rules += "install nvidia-uvm modprobe nvidia ; modprobe -i nvidia-current-uvm $CMDLINE_OPTS\n"
    make_tree(tmp_path, {"/etc/modprobe.d/nvidia.conf": rules})
    found = prove(tmp_path, L40S)
    assert faults(found) == []
    assert "nvidia_current claims 10de:26b9 (L40S)" in facts(found)


def test_an_unknown_device_must_be_claimed(tmp_path: Path) -> None:
    other = ("1002:744c", "Radeon RX 7900 XTX", "gfx1100")
    assert faults(prove(make(tmp_path), other)) == []
    [fault] = faults(prove(tmp_path, ("1234:5678", "Something", "")))
    assert fault == "no module of the kernel claims 1234:5678 (Something)"


def test_what_overlays_need(tmp_path: Path) -> None:
    make(tmp_path)
    absent = Expectations(modules=("mei_gsc",))
    assert faults(prove(tmp_path, expectations=absent)) == [
        "the module mei_gsc is needed, but is not in the image"
    ]
    blocker = Expectations(modules=("nouveau",))
    assert faults(prove(tmp_path, expectations=blocker)) == [
        "the module nouveau is needed, but is blocked"
    ]


DKMS = "/var/lib/dkms/nvidia/550.163.01"
CONF = 'PACKAGE_NAME="nvidia"\nBUILT_MODULE_NAME[0]="nv"\nDEST_MODULE_NAME[0]="$PACKAGE_NAME"\n'


def test_dkms_installed(tmp_path: Path) -> None:
    conf: dict[str, Content] = {
        f"{DKMS}/source": Link("/usr/src/nvidia"),
        "/usr/src/nvidia/dkms.conf": CONF,
    }
    make_tree(make(tmp_path), {**conf, f"{DKMS}/{KERNEL}/x86_64/module/nvidia.ko.xz": b"x"})
    found = prove(tmp_path)
    assert faults(found) == []
    assert any(fact.startswith("DKMS: nvidia 550.163.01 is installed") for fact in facts(found))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({f"{DKMS}/source/dkms.conf": 'BUILT_MODULE_NAME[0]="v4l2loopback"'},
         f"is added, but not built for {KERNEL}: no v4l2loopback"),
        ({f"{DKMS}/6.1.0-9-amd64/x86_64/module/zfs.ko": b"x"},
         f"is built for 6.1.0-9-amd64, but the image boots {KERNEL}"),
        ({f"{DKMS}/{KERNEL}/x86_64/module/zfs.ko": b"x"},
         f"is built, but not installed for {KERNEL}: no zfs"),
        ({f"{DKMS}/build/make.log": "make\ncc a.c\na.c:3: error: no such field\nmake: Leaving\n"},
         f"failed to build for {KERNEL}: a.c:3: error: no such field"),
    ],
)  # fmt: skip
def test_dkms_left_something(tmp_path: Path, files: dict[str, str | bytes], said: str) -> None:
    make_tree(make(tmp_path), dict(files))
    [fault] = faults(prove(tmp_path))
    assert fault == f"DKMS: nvidia 550.163.01 {said}"


def test_signatures(tmp_path: Path) -> None:
    make_tree(make(tmp_path, {TTM: {}, NVIDIA: {}}), {})
    root = make_tree(tmp_path, {f"{FOLDER}/updates/dkms/s.ko": make_module(signed=True)})
    assert read_module(root, f"{FOLDER}/updates/dkms/s.ko").signed
    assert not read_module(root, f"{FOLDER}/{NVIDIA}").signed


def test_a_module_is_read_once_and_not_at_all_if_it_is_known(tmp_path: Path) -> None:
    make_tree(make(tmp_path, {TTM: {}, NVIDIA: {}}), {})
    root = make_tree(tmp_path, {f"{FOLDER}/linked.ko.xz": Link(TTM)})
    ttm, nvidia, linked = (f"{FOLDER}/{name}" for name in (TTM, NVIDIA, "linked.ko.xz"))
    known = {path: Module(path, {"vermagic": ("known",)}) for path in (ttm, linked, "/gone.ko")}
    reader = ModuleReader(root, lambda: {"": known})
    found = reader.modules([ttm, nvidia, linked, "/gone.ko"])
    assert [module.release for module in found] == ["known", KERNEL, KERNEL, ""]
    assert found[3].problem == "is missing"
    assert reader.module(nvidia) is found[1]
    kept = reader.kept(lambda module: not module.problem)
    assert kept == {"": {ttm: found[0], nvidia: found[1]}}, "a link may lead elsewhere"


@pytest.mark.parametrize("forced", ["cmdline", "config"])
def test_unsigned_where_signatures_are_enforced(tmp_path: Path, forced: str) -> None:
    make(tmp_path)
    cmdline = ("module.sig_enforce=1",) if forced == "cmdline" else ()
    if forced == "config":
        make_tree(tmp_path, {f"{FOLDER}/config": "CONFIG_MODULE_SIG_FORCE=y\n"})
    [fault] = faults(prove(tmp_path, cmdline=cmdline))
    assert fault.endswith(
        "not signed, and this kernel rejects unsigned modules: nvidia_uvm, nvidia"
    )


def test_the_class_of_a_device_is_tried(tmp_path: Path) -> None:
    files = kernel_files(
        {
            "kernel/a.ko": {"alias": "pci:v00001022d000017F0sv*sd*bc*sc*i*"},
            "kernel/b.ko": {"alias": "pci:v00001022d*sv*sd*bc04sc03i00*"},
        }
    )
    kernel = Kernel(ModuleReader(make_tree(tmp_path, files)), KERNEL)
    assert set(kernel.claims("1022:17f0")) == {"a"}
    assert kernel.claims("1022:17F0") == kernel.claims("1022:17f0")


def test_a_modprobe_that_is_killed_is_no_answer(tmp_path: Path) -> None:
    make_tree(make(tmp_path), {"/usr/sbin/modprobe": Program()})
    found = prove(tmp_path, RADEON, run=Sandbox({"": Completed(-9, "", "")}))
    assert [text for text in faults(found) if "modprobe" in text] == []
    unread = "which modules /usr/sbin/modprobe loads for 1002:7480"
    assert f"could not be examined: {unread} (killed by signal 9)" in warnings(found)
    found = prove(tmp_path, RADEON, run=Sandbox({"": Completed(0, "insmod /x/drm.ko\n", "")}))
    assert any("modprobe does not load amdgpu for 1002:7480" in text for text in faults(found))


def test_settings_of_the_root(tmp_path: Path) -> None:
    text = "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\nalias foo bar-baz\n"
    root = make_tree(tmp_path, {"/etc/modprobe.d/n.conf": text})
    settings = read_settings(subject(root, cmdline=("module_blacklist=a-b,c",)))
    assert settings.real("nvidia") == "nvidia_current_open"
    assert settings.real("foo") == "bar_baz"
    assert settings.real("other-one") == "other_one"
    assert set(settings.never) == {"a_b", "c"}


def in_ubuntus_layout(path: Path, *, built_for: str = "") -> Path:
    """The same root as Ubuntu packs it: modules in zstd, the kernel in /boot."""
    modules = {name.replace(".ko.xz", ".ko.zst"): info for name, info in MODULES.items()}
    files = kernel_files(modules, built_for=built_for)
    files[f"/boot/vmlinuz-{KERNEL}"] = files.pop(f"{FOLDER}/vmlinuz")
    make_tree(path, files)
    make_tree(path, {BLACKLIST: "blacklist nouveau\n"})
    return path


def test_ubuntus_layout(tmp_path: Path) -> None:
    expected = Expectations(modules=("amdgpu", "nvidia-uvm"))
    found = prove(in_ubuntus_layout(tmp_path), RADEON, L40S, expectations=expected)
    assert faults(found) == []
    assert f"one kernel, {KERNEL}" in facts(found)
    assert f"5 modules built for {KERNEL}" in facts(found)


def test_faults_in_ubuntus_layout(tmp_path: Path) -> None:
    found = prove(in_ubuntus_layout(tmp_path / "other", built_for="5.15.0-1-generic"), RADEON)
    assert any("5.15.0-1-generic" in fault for fault in faults(found))
    root = in_ubuntus_layout(tmp_path / "cut")
    module = root / f"{FOLDER}/{AMDGPU}".lstrip("/").replace(".ko.xz", ".ko.zst")
    module.write_bytes(module.read_bytes()[:40])
    assert any("amdgpu" in fault for fault in faults(prove(root, RADEON)))


def test_a_kernel_before_the_card(tmp_path: Path) -> None:
    """amdgpu claims every display of AMD's, so that the alias says nothing of the chip."""
    own = find_chip(RADEON[0])
    assert own is not None
    chip = replace(own, minimum={"kernel": "8.1"})
    device = Hardware(*RADEON, chip=chip)
    make(tmp_path)
    [said] = faults(prove_kernel(subject(tmp_path, hardware=[device])))
    assert said == f"amdgpu of Linux {KERNEL} is too old for 1002:7480 (Radeon RX 7600 XT)"
    # A driver that was built for the image may be newer than the kernel.
    built = {AMDGPU.replace("kernel/", "updates/"): MODULES[AMDGPU]}
    make_tree(tmp_path / "2", kernel_files(built))
    assert faults(prove_kernel(subject(tmp_path / "2", hardware=[device]))) == []


def test_a_program_that_some_machines_need(tmp_path: Path) -> None:
    h100 = ("10de:2330", "H100 SXM5 80GB", "sm_90")
    make(tmp_path)
    found = prove(tmp_path, h100)
    assert faults(found) == []
    [said] = warnings(found)
    assert said.startswith("/usr/bin/nv-fabricmanager, which 10de:2330 ")
    make_tree(tmp_path, {"/usr/bin/nv-fabricmanager": "#!/bin/sh\n"})
    assert warnings(prove(tmp_path, h100)) == []
    assert warnings(prove(tmp_path, L40S)) == []


R8169, R8125 = "kernel/drivers/net/ethernet/realtek/r8169.ko.xz", "updates/dkms/net/r8125.ko"


@pytest.mark.parametrize(
    ("line", "more", "told"),
    [
        ("blacklist r8169", {}, 1),
        ("install r8169 /bin/false", {}, 1),
        ("blacklist r8169", {R8125: {}}, 0),
        ("blacklist pcspkr", {}, 0),
        ("blacklist amdgpu_not_there", {}, 0),
    ],
)
def test_drivers_of_nics_that_are_kept_off(
    tmp_path: Path, line: str, more: Mapping[str, Info], told: int
) -> None:
    make_tree(tmp_path, kernel_files({R8169: {}, **more}))
    make_tree(tmp_path, {BLACKLIST: f"{line}\n"})
    found = warnings(prove_kernel(subject(tmp_path, hardware=[RADEON])))
    assert len([what for what in found if "driver of wired NICs" in what]) == told
