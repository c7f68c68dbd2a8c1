# SPDX-License-Identifier: Apache-2.0
"""The closure of NEEDED, ICD files, and what the image's loader says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding
from imagebuilder.image.types import ImageSource
from imagebuilder.process import Completed, run
from imagebuilder.proof.libraries.prove import parse_loads, prove_libraries
from imagebuilder.proof.reading.libraries import SETTINGS
from imagebuilder.recipe.expectations import Code, Expectations, ExpectedEngine, PythonWorks
from tests.fixtures.elf import AARCH64, LOADER, make_elf
from tests.unit.proof.trees import Link, Program, facts, faults, make_tree, subject, warnings

LIB = "/usr/lib/x86_64-linux-gnu"
SITE = "/opt/vllm/lib/python3.13/site-packages"
CARD = ("1002:7480", "Radeon", "gfx1102")
Files = Mapping[str, bytes | str | Link | Program]


@dataclass(frozen=True)
class OnHost:
    """Asks the host's own shell and loader about files of a tree."""

    tree: Path

    def __call__(self, argv: Sequence[str], *, seconds: int = 60) -> Completed:
        assert seconds
        inside = (f"{self.tree}{w}" if (self.tree / w[1:]).is_file() else w for w in argv)
        return run(list(inside), check=False)


def proved(
    tmp_path: Path, files: Files, *, cards: Sequence[tuple[str, str, str]] = (), **expected: object
) -> list[Finding]:
    """What the question finds in a tree; `expected` are fields of Expectations."""
    root = make_tree(tmp_path, {"/lib": Link("usr/lib"), **files})
    expectations = Expectations(**expected)  # type: ignore[arg-type]
    asked = subject(root, hardware=cards, expectations=expectations, run=OnHost(tmp_path))
    return list(prove_libraries(asked))


def program(*needed: str, runpath: str = "") -> bytes:
    """A program that needs these libraries."""
    return make_elf(interpreter=LOADER, needed=needed, runpath=runpath)


def library(soname: str, *needed: str, runpath: str = "") -> bytes:
    """A library that needs these."""
    return make_elf(soname=soname, needed=needed, runpath=runpath)


def vulkan(path: str) -> str:
    """An ICD file."""
    return json.dumps({"ICD": {"library_path": path, "api_version": "1.4.0"}})


GOOD: Files = {
    "/usr/bin/tool": program("liba.so.1", "libc.so.6"),
    f"{LIB}/liba.so.1": Link("liba.so.1.2"),
    f"{LIB}/liba.so.1.2": library("liba.so.1", "libc.so.6", "libfast.so"),
    f"{LIB}/libc.so.6": library("libc.so.6"),
    f"{LIB}/glibc-hwcaps/x86-64-v3/libfast.so": library("libfast.so"),
    "/opt/tool/bin/tool": program("libown.so", runpath="$ORIGIN/../lib"),
    "/opt/tool/lib/libown.so": library("libown.so", "libother.so", runpath="${ORIGIN}"),
    "/opt/tool/lib/libother.so": library("libother.so"),
}


def test_all_needed_libraries_are_there(tmp_path: Path) -> None:
    found = proved(tmp_path, GOOD)
    assert facts(found) == ["all libraries that 7 programs and libraries need are present"]
    assert len(found) == 1


def test_a_program_in_path_that_lacks_a_library(tmp_path: Path) -> None:
    found = proved(tmp_path, {**GOOD, "/usr/bin/other": program("libnope.so.3")})
    assert faults(found) == ["libnope.so.3 is not in the image: other needs it"]
    (evidence,) = found[0].evidence
    assert (evidence.path, evidence.section, evidence.said) == (
        "/usr/bin/other",
        ".dynamic",
        "libnope.so.3",
    )


def test_what_a_library_of_a_program_lacks(tmp_path: Path) -> None:
    deep = {**GOOD, f"{LIB}/libc.so.6": library("libc.so.6", "libnope.so")}
    (fault,) = faults(proved(tmp_path, deep))
    assert fault.startswith("libnope.so is not in the image: libc.so.6 needs it (")
    assert "is a program" in fault


def test_a_plugin_that_nobody_declared(tmp_path: Path) -> None:
    plugin = {**GOOD, f"{LIB}/plugins/libplugin.so": library("libplugin.so", "libnope.so")}
    found = proved(tmp_path, plugin)
    assert (faults(found), warnings(found)) == ([], [])
    assert facts(found) == ["plugins that lack a library, but that nothing declared loads: 1"]
    removed = {**plugin, "/var/lib/dpkg/info/libnope1:amd64.list": f"/.\n{LIB}/libnope.so\n"}
    found = proved(tmp_path, removed)
    assert warnings(found) == ["libnope.so is not in the image: libplugin.so needs it"]
    assert found[0].hint.startswith("libnope1 is installed and has it")


def test_a_plugin_that_is_declared(tmp_path: Path) -> None:
    hip = f"{LIB}/ggml/backends0/libggml-hip.so"
    files = {**GOOD, hip: library("libggml-hip.so", "libhipblas.so.2")}
    expected = "libhipblas.so.2 is not in the image: libggml-hip.so needs it"
    for declared in (
        {"libraries": (hip,)},
        {"code": (Code((f"{LIB}/ggml/backends*/libggml-hip.so",), "gfx1102"),)},
        {"engines": (ExpectedEngine("llama.cpp", ("hip",)),)},
    ):
        said = faults(proved(tmp_path, files, **declared))
        assert said[0].startswith(expected), declared
        assert faults(proved(tmp_path, files)) == []


def test_a_library_for_another_machine_is_none(tmp_path: Path) -> None:
    files = {**GOOD, f"{LIB}/liba.so.1.2": make_elf(soname="liba.so.1", machine=AARCH64)}
    found = proved(tmp_path, files)
    assert faults(found) == [
        f"liba.so.1 is not in the image: tool needs it; {LIB}/liba.so.1.2 is for arm64"
    ]
    assert warnings(found) == ["liba.so.1.2 cannot run: for arm64, not for x86-64"]


def test_a_library_of_python_is_no_library_of_the_system(tmp_path: Path) -> None:
    files = {
        **GOOD,
        "/usr/bin/other": program("libcublas.so.12"),
        f"{SITE}/nvidia/cublas/lib/libcublas.so.12": library("libcublas.so.12"),
    }
    (fault,) = faults(proved(tmp_path, files))
    assert fault.endswith(f"{SITE}/nvidia/cublas/lib/libcublas.so.12 is not where ld.so looks")


def test_ld_so_knows_other_folders_by_its_cache(tmp_path: Path) -> None:
    files = {
        **GOOD,
        "/usr/bin/other": program("librocm.so"),
        "/opt/rocm/lib/librocm.so": library("librocm.so"),
        "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/rocm.conf": "# AMD\n/opt/rocm/lib\n",
    }
    assert len(faults(proved(tmp_path, files))) == 1
    cache = b"glibc-ld.so.cache1.1\0librocm.so\0/opt/rocm/lib/librocm.so\0"
    assert faults(proved(tmp_path, {**files, "/etc/ld.so.cache": cache})) == []


ENVIRONMENT: Files = {
    **GOOD,
    f"{SITE}/torch/_C.cpython-313-x86_64-linux-gnu.so": library("", "libtorch.so"),
    # Preloaded by torch, found by no search path.
    f"{SITE}/torch/lib/libtorch.so": library("libtorch.so", "libcublas.so.12"),
    f"{SITE}/nvidia/cublas/lib/libcublas.so.12": library("libcublas.so.12"),
    f"{SITE}/numba/np/ufunc/tbbpool.cpython-313.so": library("", "libtbb.so.12"),
}
WORKS = PythonWorks("/opt/vllm", ("torch",), "cuda")


def test_a_python_environment(tmp_path: Path) -> None:
    found = proved(tmp_path, ENVIRONMENT, python=(WORKS,))
    assert (faults(found), warnings(found)) == ([], [])
    assert facts(found)[0].startswith("plugins that lack a library")


def test_a_python_package_that_lacks_what_it_links(tmp_path: Path) -> None:
    files = dict(ENVIRONMENT)
    del files[f"{SITE}/nvidia/cublas/lib/libcublas.so.12"]
    (fault,) = faults(proved(tmp_path, files, python=(WORKS,)))
    assert fault == (
        "libcublas.so.12 is not in the image: libtorch.so needs it (/opt/vllm imports torch)"
    )


# --- ICD files ------------------------------------------------------------------------------------

ICD = "/usr/share/vulkan/icd.d"
VULKAN = (ExpectedEngine("llama.cpp", ("vulkan",)),)


def test_drivers_of_the_card(tmp_path: Path) -> None:
    files = {
        **GOOD,
        f"{ICD}/radeon_icd.json": vulkan("libvulkan_radeon.so"),
        f"{LIB}/libvulkan_radeon.so": library("libvulkan_radeon.so"),
        "/etc/vulkan/icd.d/own.json": vulkan("../../opt/own.so"),
        "/etc/opt/own.so": library("own.so"),
        "/etc/OpenCL/vendors/rusticl.icd": f"{LIB}/libRusticl.so\n",
        f"{LIB}/libRusticl.so": library("libRusticl.so"),
    }
    found = proved(tmp_path, files, cards=[CARD], engines=VULKAN)
    assert (faults(found), warnings(found)) == ([], [])
    assert facts(found)[1:] == [
        "present Vulkan and OpenCL drivers: libRusticl.so libvulkan_radeon.so own.so",
        "declared libraries and drivers load in the image (3)",
    ]


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({}, "missing ICD: no Vulkan driver for PCI vendor 1002"),
        (
            {
                f"{ICD}/lvp_icd.json": vulkan("libvulkan_lvp.so"),
                f"{LIB}/libvulkan_lvp.so": library("libvulkan_lvp.so"),
            },
            "missing ICD: no Vulkan driver for PCI vendor 1002, only one that computes on the "
            "processor",
        ),
        (
            {f"{ICD}/radeon_icd.json": vulkan("libvulkan_radeon.so")},
            "Vulkan ICD radeon_icd.json points at libvulkan_radeon.so, which does not exist",
        ),
        (
            {f"{ICD}/radeon_icd.json": vulkan("libvulkan_radeon.so"),
             f"{LIB}/libvulkan_radeon.so": make_elf(machine=AARCH64)},
            "Vulkan ICD radeon_icd.json points at libvulkan_radeon.so, which does not exist",
        ),
        (
            {f"{ICD}/radeon_icd.json": vulkan("libvulkan_radeon.so"),
             f"{LIB}/libvulkan_radeon.so": library("libvulkan_radeon.so"),
             "/opt/lvp.json": vulkan("libvulkan_lvp.so"),
             f"{LIB}/libvulkan_lvp.so": library("libvulkan_lvp.so"),
             SETTINGS: '{"settings": {"additional_drivers_use_exclusively": true,'
             ' "additional_drivers": [{"path": "/opt/lvp.json"}]}}'},
            "missing ICD: no Vulkan driver for PCI vendor 1002, only one that computes on the "
            "processor",
        ),
    ],
    ids=["none", "software only", "dangling", "for another machine", "settings of the loader"],
)  # fmt: skip
def test_missing_icd(files: Files, what: str, tmp_path: Path) -> None:
    said = faults(proved(tmp_path, {**GOOD, **files}, cards=[CARD], engines=VULKAN))
    assert said == [what]


def test_icd_files_that_nobody_waits_for(tmp_path: Path) -> None:
    files = {**GOOD, f"{ICD}/intel_icd.json": "{}", "/etc/OpenCL/vendors/x.icd": "libx.so\n"}
    found = proved(tmp_path, files)
    assert faults(found) == []
    assert warnings(found) == [
        "Vulkan ICD intel_icd.json is no JSON with ICD.library_path",
        "OpenCL ICD x.icd points at libx.so, which does not exist",
    ]


def test_an_icd_whose_library_lacks_a_library(tmp_path: Path) -> None:
    files = {
        **GOOD,
        f"{ICD}/radeon_icd.json": vulkan("libvulkan_radeon.so"),
        f"{LIB}/libvulkan_radeon.so": library("libvulkan_radeon.so", "libdrm_nope.so.1"),
    }
    said = faults(proved(tmp_path, files, cards=[CARD], engines=VULKAN))
    assert said == [
        "libdrm_nope.so.1 is not in the image: libvulkan_radeon.so needs it "
        f"({ICD}/radeon_icd.json announces it)",
    ]


# --- what the loader says -------------------------------------------------------------------------


def test_a_declared_library_that_is_not_there(tmp_path: Path) -> None:
    files = {**GOOD, f"{LIB}/libze_loader.so.2": library("libze_loader.so.2")}
    (fault,) = faults(proved(tmp_path, files, libraries=(f"{LIB}/libze_loader.so.1",)))
    assert fault == (
        "libze_loader.so.1 is not in the image, but an overlay declares it; the image has "
        "libze_loader.so.2"
    )


def test_a_declared_library_that_loads(tmp_path: Path) -> None:
    found = proved(tmp_path, GOOD, libraries=(f"{LIB}/libc.so.6",))
    assert facts(found)[1:] == ["declared libraries and drivers load in the image (1)"]


def test_a_library_that_the_loader_does_not_take(tmp_path: Path) -> None:
    whole = make_elf(soname="libb.so")
    broken = whole[:20] + bytes([9]) + whole[21:]  # e_version
    files = {**GOOD, f"{LIB}/libb.so": broken}
    (fault,) = faults(proved(tmp_path, files, libraries=(f"{LIB}/libb.so",)))
    assert fault.startswith("libb.so does not load: ")
    assert fault.endswith("ELF file version does not match current one")


def test_a_loader_that_cannot_be_asked(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {"/lib": Link("usr/lib"), **GOOD})
    expected = Expectations(libraries=(f"{LIB}/libc.so.6",))
    found = list(prove_libraries(subject(root, expectations=expected)))
    assert len(warnings(found)) == 1


def test_complaints_of_the_loader() -> None:
    said = os.linesep.join(
        (
            "library /a.so",
            "\tlibc.so.6 => /lib/libc.so.6 (0x00007f00)",
            "status 0",
            "library /b.so",
            "/b.so: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /b.so)",
            "status 1",
            "library /c.so",
            "status 139",
        )
    )
    assert parse_loads(said) == {
        "/a.so": [],
        "/b.so": ["/b.so: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /b.so)"],
        "/c.so": ["the loader ends with status 139"],
    }


def test_what_stands_in_for_a_vendor_is_told(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {"/lib": Link("usr/lib"), **GOOD})
    source = ImageSource("nvidia", "", (), 0, "", "", "", "a fixture of the tests")
    asked = subject(root, run=OnHost(tmp_path), sources=(source,))
    found = list(prove_libraries(asked))
    assert faults(found) == []
    assert warnings(found) == ["packages of nvidia are not from the vendor: a fixture of the tests"]


def test_programs_that_overlays_declare(tmp_path: Path) -> None:
    files: Files = {
        "/usr/bin/good": Program("#!/bin/sh\n"),
        "/bin/sh": Program(""),
        "/usr/bin/text": "#!/bin/sh\n",
        "/usr/bin/odd": Program("#!/usr/bin/tcl\n"),
    }
    programs = tuple(f"/usr/bin/{name}" for name in ("good", "text", "odd", "gcc"))
    assert faults(proved(tmp_path, files, programs=programs)) == [
        "an overlay declares the program /usr/bin/text, which is not executable",
        "an overlay declares the program /usr/bin/odd, whose interpreter /usr/bin/tcl is not in "
        "the image",
        "an overlay declares the program /usr/bin/gcc, which is not in the image",
    ]


def test_a_program_that_lacks_a_library(tmp_path: Path) -> None:
    files = {"/usr/bin/tool": program("libgone.so.1")}
    (what, *_) = faults(proved(tmp_path, files, programs=("/usr/bin/tool",)))
    assert what.startswith("libgone.so.1 is not in the image")


@pytest.mark.parametrize("same", [True, False])
def test_two_runtimes_in_one_process(tmp_path: Path, same: bool) -> None:  # noqa: FBT001
    other = "libamdhip64.so.6" if same else "libamdhip64.so.7"
    files: Files = {
        f"{LIB}/libggml-hip.so": library("libggml-hip.so", "libamdhip64.so.6", "librocblas.so.4"),
        f"{LIB}/librocblas.so.4": library("librocblas.so.4", other),
        f"{LIB}/libamdhip64.so.6": library("libamdhip64.so.6"),
        f"{LIB}/libamdhip64.so.7": library("libamdhip64.so.7"),
    }
    found = warnings(proved(tmp_path, files, libraries=(f"{LIB}/libggml-hip.so",)))
    assert ["loads two versions of libamdhip64" in what for what in found] == [True] * (not same)


@pytest.mark.parametrize("release", ["2.21", "2.18"])
def test_libraries_of_two_releases_of_xrt(tmp_path: Path, release: str) -> None:
    files: Files = {
        f"{LIB}/libxrt_core.so.2.21.75": library("libxrt_core.so.2"),
        f"{LIB}/libxrt_driver_xdna.so.{release}.0": library("libxrt_driver_xdna.so.2"),
    }
    found = [what for what in warnings(proved(tmp_path, files)) if "XRT" in what]
    assert len(found) == (release != "2.21")


@pytest.mark.parametrize("value", ["", "/opt/rocm/lib", "'/opt/rocm/lib"])
def test_libraries_that_a_service_is_told_of(tmp_path: Path, value: str) -> None:
    unit = f"[Service]\nExecStart=/opt/a/bin/a\nEnvironment=LD_LIBRARY_PATH={value}\n"
    files: Files = {
        "/opt/a/bin/a": program("libown.so"),
        "/opt/rocm/lib/libown.so": library("libown.so"),
        "/etc/systemd/system/a.service": unit,
    }
    found = [what for what in faults(proved(tmp_path, files)) if "libown.so" in what]
    assert len(found) == (value != "/opt/rocm/lib")


def test_what_every_program_loads_first(tmp_path: Path) -> None:
    text = f"liba.so.1 # jemalloc\n{LIB}/libc.so.6:libgone.so /opt/gone.so\n# libold.so\n"
    (what,) = warnings(proved(tmp_path, {**GOOD, "/etc/ld.so.preload": text}))
    assert what.startswith("/etc/ld.so.preload names libgone.so, /opt/gone.so, which the image")
