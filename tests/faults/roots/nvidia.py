# SPDX-License-Identifier: Apache-2.0
"""The small root of a GeForce RTX 5090: NVIDIA's driver, CUDA 12.8 and vLLM.  Fixtures."""

from __future__ import annotations

import re
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.tree import Tree
from tests.faults.elf import library, program
from tests.faults.roots.shipped import LIB, Small, claims, libraries, make_small
from tests.unit.proof.trees import Content, Link, Program
from tests.workshop import CHECKOUT

KERNEL = "6.12.117+deb13-amd64"
VERSION = "580.126.20"
PCI = "10de:2b85"
ENVIRONMENT = "/opt/vllm"
SITE = f"{ENVIRONMENT}/lib/python3.13/site-packages"
OPEN = "Dual MIT/GPL"
REQUIREMENTS = CHECKOUT / "overlays/vllm/python/requirements-cuda.txt"
# Of its 150 wheels those that are asked about; faults name these versions.
WHEELS = {"torch": "2.10.0", "vllm": "0.19.1"}
RUNTIME = "nvidia-cuda-runtime-cu12"


def locked(requirements: Path) -> dict[str, str]:
    """WHEELS, and the CUDA runtime in the version of the overlay's requirements."""
    found = re.search(rf"^{RUNTIME}==([^ ;\\]+)", requirements.read_text(), re.MULTILINE)
    assert found
    return {**WHEELS, RUNTIME: found[1]}


def driver() -> dict[str, Content]:
    """The driver's libraries, each with the name that programs ask for; what makes its nodes."""
    found: dict[str, Content] = {
        "/usr/bin/nvidia-modprobe": program(),
        "/usr/bin/nvidia-persistenced": program(),
        "/usr/lib/systemd/system/nvidia-persistenced.service": (
            "[Service]\nType=forking\nExecStart=/usr/bin/nvidia-persistenced\n"
        ),
    }
    for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
        found[f"{LIB}/{name}.so.{VERSION}"] = library(f"{name}.so.1")
        found[f"{LIB}/{name}.so.1"] = Link(f"{name}.so.{VERSION}")
    return found


# Some of the options and variables that vLLM 0.19.1 has, where it names them all.
OPTIONS = (
    "--attention-backend", "--enable-log-requests", "--enforce-eager", "--gpu-memory-utilization",
    "--host", "--max-model-len", "--max-num-seqs", "--port", "--safetensors-load-strategy",
    "--served-model-name",
    "--tensor-parallel-size", "--cpu-offload-gb", "--device", "--load-format",
)  # fmt: skip
VARIABLES = (
    "VLLM_CONFIGURE_LOGGING", "VLLM_HOST_IP", "VLLM_LOGGING_LEVEL", "VLLM_TARGET_DEVICE",
    "VLLM_USE_FLASHINFER_SAMPLER",
)  # fmt: skip
SOURCES: dict[str, Content] = {
    f"{SITE}/vllm/engine/arg_utils.py": "".join(f"{option}\n" for option in OPTIONS),
    f"{SITE}/vllm/envs.py": "".join(f"{variable}\n" for variable in VARIABLES),
}


def vllm(wheels: dict[str, str]) -> dict[str, Content]:
    """The environment: its interpreter, what was installed, the libraries with kernels."""
    torch, kernels = f"{SITE}/torch/lib/libtorch_cuda.so", f"{SITE}/vllm/_C.abi3.so"
    attention = f"{SITE}/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"
    found: dict[str, Content] = {
        "/usr/bin/python3.13": program(),
        "/usr/bin/gcc": program(),
        f"{ENVIRONMENT}/bin/python": Link("/usr/bin/python3.13"),
        f"{ENVIRONMENT}/bin/vllm": Program(f"#!{ENVIRONMENT}/bin/python\n"),
        f"{ENVIRONMENT}/pyvenv.cfg": "home = /usr/bin\n",
        **SOURCES,
        **libraries(f"{SITE}/torch/lib/libc10.so"),
        torch: library(torch, ["libc10.so", "libcuda.so.1"], cuda=["sm_90", "sm_120"]),
        kernels: library(kernels, ["libc10.so"], cuda=["sm_90", "sm_120"]),
        # The real one has PTX, which is told as a warning: a good root is to be without any.
        attention: library(attention, ["libc10.so"], cuda=["sm_80", "sm_120"]),
    }
    for name, version in wheels.items():
        info = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
        found[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        found[f"{info}/RECORD"] = ""
    return found


def said(wheels: dict[str, str]) -> dict[str, Json]:
    """What the environment finds of itself, and what its guard does, where there is no device."""
    torch = f"{wheels['torch']}+cu128"
    environment: dict[str, Json] = {
        "python": "3.13.5",
        "modules": {"torch": {"version": torch}, "vllm": {"version": wheels["vllm"]}},
        "torch": {
            "version": torch, "cuda": "12.8", "hip": "", "xpu": "",
            "flags": ["sm_80", "sm_90", "sm_120", "compute_120"],
        },
        "platforms": {"vllm": {"platform": "UnspecifiedPlatform", "device": ""}},
    }  # fmt: skip
    return {
        f"{ENVIRONMENT}/bin/python -I -c": {"environment": environment},
        "/usr/libexec/vllm/find-device": {
            "status": 1,
            "stderr": "no device of kind cuda; vLLM is not started",
        },
    }


def make_nvidia(tree: Tree) -> None:
    """made-nvidia, of the recipe rtx5090."""
    wheels = locked(REQUIREMENTS)
    known = {"license": OPEN, "version": VERSION}
    small = Small(
        name="nvidia",
        profile="rtx5090",
        kernel=KERNEL,
        modules={
            "updates/dkms/nvidia.ko.xz": {**known, **claims(PCI)},
            "updates/dkms/nvidia-uvm.ko.xz": known,
            "kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz": claims(PCI),
        },
        needs={"updates/dkms/nvidia-uvm.ko.xz": ["updates/dkms/nvidia.ko.xz"]},
        firmware=[f"nvidia/{VERSION}/gsp_ga10x.bin"],
        files={**driver(), **vllm(wheels)},
        wheels=[(ENVIRONMENT, name, version) for name, version in wheels.items()],
        answers=said(wheels),
    )
    make_small(tree, small)
