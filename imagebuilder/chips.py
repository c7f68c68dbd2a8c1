# SPDX-License-Identifier: Apache-2.0
"""What is known of accelerators by their PCI id: driver, firmware, accelerator target.

The facts are the drivers' own (their MODULE_FIRMWARE lists and IP discovery tables); each row says
where they are from.  `firmware` are globs below /usr/lib/firmware: each must match one file or
more.  Files may be compressed: `.xz` or `.zst` is not written here.
"""

from __future__ import annotations

from dataclasses import dataclass

# The versions of a Radeon's parts (GC, PSP, SDMA, VCN, DCN, SMU) are read from the chip itself; the
# kernel's tables of products say which they are: Documentation/gpu/amdgpu/*-asic-info-table.csv.
AMDGPU = (
    "Documentation/gpu/amdgpu/{}-asic-info-table.csv and MODULE_FIRMWARE of "
    "drivers/gpu/drm/amd of Linux"
)
# nv-firmware.h gives GA10x, Ada, Hopper and Blackwell one file; its folder is the driver's version.
NVIDIA = "src/nvidia/arch/nvalloc/unix/include/nv-firmware.h of NVIDIA's open kernel modules"
GSP = ("nvidia/*/gsp_ga10x.bin",)
# Files of which a driver wants the first and makes do with the second: how the names end.
# drivers/accel/amdxdna/aie2_pci.c (npu_fw), drivers/gpu/drm/amd/amdgpu/amdgpu_mes.c of Linux.
STAND_INS = (("/npu_7.sbin", "/npu.sbin"), ("_mes_2.bin", "_mes.bin"))


@dataclass(frozen=True)
class Chip:
    """An accelerator: `pci` as `1002:7480`, the kernel modules one of which drives it, and what
    that asks for at boot.  `target` is "" where there is no such thing.

    `beside` are modules that programs need as well as the driver; `group` owns its device nodes by
    the distribution's rules, "" where the driver makes them for everybody.
    """

    pci: str
    name: str
    vendor: str
    target: str
    modules: tuple[str, ...]
    firmware: tuple[str, ...]
    source: str
    beside: tuple[str, ...] = ()
    group: str = "render"


def blackwell(device: str, name: str) -> Chip:
    """A card of NVIDIA's Blackwell family with a GB20x chip: compute capability 12.0."""
    return geforce(device, name, "sm_120")


def geforce(device: str, name: str, target: str) -> Chip:
    """A card that NVIDIA's own driver drives.  CUDA needs nvidia-uvm beside it."""
    return Chip(
        pci=f"10de:{device}",
        name=name,
        vendor="NVIDIA",
        target=target,
        modules=("nvidia",),
        firmware=GSP,
        source=NVIDIA,
        beside=("nvidia_uvm",),
        group="",
    )


CHIPS: tuple[Chip, ...] = (
    Chip(
        pci="1002:7480",
        name="Navi 33 (Radeon RX 7600, RX 7600 XT)",
        vendor="AMD",
        target="gfx1102",
        modules=("amdgpu",),
        firmware=(
            "amdgpu/gc_11_0_2_*.bin",
            "amdgpu/psp_13_0_7_*.bin",
            "amdgpu/sdma_6_0_2*.bin",
            "amdgpu/vcn_4_0_4*.bin",
            "amdgpu/dcn_3_2_1_*.bin",
            "amdgpu/smu_13_0_7*.bin",
        ),
        source=AMDGPU.format("dgpu"),
    ),
    # Its power management (SMU 14.0.1) is in the machine's firmware, not in a file.
    Chip(
        pci="1002:1586",
        name="Strix Halo (Radeon 8050S, 8060S of Ryzen AI Max)",
        vendor="AMD",
        target="gfx1151",
        modules=("amdgpu",),
        firmware=(
            "amdgpu/gc_11_5_1_*.bin",
            "amdgpu/psp_14_0_1_*.bin",
            "amdgpu/sdma_6_1_1*.bin",
            "amdgpu/vcn_4_0_6*.bin",
            "amdgpu/dcn_3_5_1_*.bin",
            "amdgpu/vpe_6_1_1*.bin",
        ),
        source=AMDGPU.format("apu"),
    ),
    # The id is shared; revision 0x10 is Strix Point's, 0x11 Strix Halo's, 0x20 Krackan's.
    Chip(
        pci="1022:17f0",
        name="XDNA 2 NPU of Ryzen AI Max (revision 11)",
        vendor="AMD",
        target="",
        modules=("amdxdna",),
        firmware=("amdnpu/17f0_11/npu*.sbin",),
        source="amdxdna_ids of drivers/accel/amdxdna/amdxdna_pci_drv.c of Linux",
    ),
    # The GSC's own firmware is in the card's flash.
    Chip(
        pci="8086:56a0",
        name="DG2 (Arc A770)",
        vendor="Intel",
        target="dg2",
        modules=("i915", "xe"),
        firmware=("i915/dg2_guc_*.bin", "i915/dg2_huc_*.bin", "i915/dg2_dmc_*.bin"),
        source="drivers/gpu/drm/i915/gt/uc/intel_uc_fw.c, drivers/gpu/drm/xe/xe_uc_fw.c and "
        "drivers/gpu/drm/i915/display/intel_dmc.c of Linux",
    ),
    blackwell("2f04", "GB205 (GeForce RTX 5070)"),
    blackwell("2b85", "GB202 (GeForce RTX 5090)"),
    blackwell("2bb1", "GB202 (RTX PRO 6000 Blackwell Workstation Edition)"),
    blackwell("2bb4", "GB202 (RTX PRO 6000 Blackwell Max-Q Workstation Edition)"),
    blackwell("2bb5", "GB202 (RTX PRO 6000 Blackwell Server Edition)"),
    geforce("26b9", "AD102 (L40S)", "sm_89"),
)


def find_chip(pci: str) -> Chip | None:
    """The chip with this PCI id, if it is known; upper case does not matter."""
    return next((chip for chip in CHIPS if chip.pci == pci.lower()), None)
