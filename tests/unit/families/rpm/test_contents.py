# SPDX-License-Identifier: Apache-2.0
"""The kernel of a root is that which a package requires, whatever else is installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.families.rpm.contents import (
    brought_by,
    find_kernel_release,
    is_kernel_headers,
    is_kernel_package,
    package_with,
    parse_relations,
    release_of,
)
from imagebuilder.lock.types import LockedPackage
from imagebuilder.lock.verified import Pool
from tests.fixtures.rpm_repository import Rpm
from tests.unit.families.rpm.packages import (
    DatabaseWorkspace,
    Marked,
    add_to_database,
    make_rpms,
)

# Rocky's kernels have releases of their own (warewulf #2199).
NEW, OLD = "687.10.1.el9_8.0.1", "70.22.1.el9_0"


def kernel_of(release: str, variant: str = "") -> tuple[Rpm, Rpm, Rpm]:
    """The packages of a kernel as kernel.spec makes them."""
    name = f"kernel-{variant}" if variant else "kernel"
    uname = f"5.14.0-{release}.x86_64" + (f"+{variant}" if variant else "")
    modules = Rpm(
        f"{name}-modules-core", "5.14.0", release, "x86_64",
        provides=(f"{name}-modules-core-uname-r = {uname}", "kernel-modules = 5.14.0"),
        requires=(f"{name}-core-uname-r = {uname}",),
        files={f"/lib/modules/{uname}/kernel/x.ko": "x"},
    )  # fmt: skip
    vmlinuz = f"/boot/vmlinuz-{uname}"
    core = Marked(
        f"{name}-core", "5.14.0", release, "x86_64",
        provides=(f"{name}-core-uname-r = {uname}", "kernel-uname-r = " + uname),
        requires=(f"{name}-modules-core-uname-r = {uname}", "linux-firmware >= 2026"),
        files={f"/lib/modules/{uname}/vmlinuz": "kernel", vmlinuz: ""},
        marks={vmlinuz: "%ghost"},
    )  # fmt: skip
    meta = Rpm(
        name, "5.14.0", release, "x86_64",
        requires=(
            f"{name}-core-uname-r = {uname}", f"{name}-modules-core-uname-r = {uname}",
            f"(({name}-modules-extra-uname-r = {uname}) if {name}-modules-extra-matched)",
        ),
    )  # fmt: skip
    return modules, core, meta


@pytest.fixture(scope="module")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages by name and release."""
    made = [*kernel_of(NEW), *kernel_of(OLD), *kernel_of(NEW, "rt")]
    paths = make_rpms(tmp_path_factory.mktemp("rpms"), *made)
    return {f"{rpm.name} {rpm.release}": path for rpm, path in zip(made, paths, strict=True)}


def root_of(root: Path, rpms: dict[str, Path], *names: str) -> DatabaseWorkspace:
    add_to_database(root, *(rpms[name] for name in names))
    return DatabaseWorkspace(root, (), "upper", 0, root / "log", Pool(root, root))


CORE, MODULES = "kernel-core", "kernel-modules-core"
WHOLE_NEW = (f"kernel {NEW}", f"{CORE} {NEW}", f"{MODULES} {NEW}")
WHOLE_RT = (f"kernel-rt {NEW}", f"kernel-rt-core {NEW}", f"kernel-rt-modules-core {NEW}")


@pytest.mark.parametrize("kernel", ["kernel", "kernel-core", "kernel-modules-core"])
def test_the_kernel_is_that_of_its_package(
    tmp_path: Path, rpms: dict[str, Path], kernel: str
) -> None:
    workspace = root_of(tmp_path, rpms, *WHOLE_NEW, *WHOLE_RT)
    assert find_kernel_release(workspace, kernel) == f"5.14.0-{NEW}.x86_64"
    assert find_kernel_release(workspace, "kernel-rt") == f"5.14.0-{NEW}.x86_64+rt"


def test_another_version_of_the_kernel_does_not_count(
    tmp_path: Path, rpms: dict[str, Path]
) -> None:
    workspace = root_of(tmp_path, rpms, *WHOLE_NEW, f"{CORE} {OLD}", f"{MODULES} {OLD}")
    assert find_kernel_release(workspace, "kernel") == f"5.14.0-{NEW}.x86_64"
    with pytest.raises(InputError, match="the package kernel-core installs 2 kernels") as caught:
        find_kernel_release(workspace, "kernel-core")
    assert f"5.14.0-{NEW}.x86_64, 5.14.0-{OLD}.x86_64" in str(caught.value)


@pytest.mark.parametrize("kernel", ["kernel", "kernel-core", "linux-image-amd64", "kernel*"])
def test_a_root_without_that_kernel_has_none(
    tmp_path: Path, rpms: dict[str, Path], kernel: str
) -> None:
    workspace = root_of(tmp_path, rpms, f"{MODULES} {NEW}")
    with pytest.raises(InputError, match="installs 0 kernels"):
        find_kernel_release(workspace, kernel)


def test_relations_may_go_in_circles() -> None:
    text = (
        "a-1.x\ta\trequires\tb\t1\na-1.x\ta\tprovides\ta\t1\n"
        "b-1.x\tb\trequires\ta\t1\nb-1.x\tb\tprovides\tb\t1\n"
        "b-2.x\tb\tprovides\tb\t2\nc-1.x\tc\trequires\tb\t(none)\nbroken\n"
    )
    relations = parse_relations(text)
    assert brought_by("a", relations) == ("a-1.x", "b-1.x")
    assert brought_by("b", relations) == ("b-1.x", "b-2.x", "a-1.x")
    assert brought_by("c", relations) == ("c-1.x",)


@pytest.mark.parametrize(
    ("package", "variant"),
    [
        ("kernel-core", ""),
        ("kernel-modules", ""),
        ("kernel-modules-core", ""),
        ("kernel-modules-extra", ""),
        ("kernel-uki-virt", ""),
        ("kernel-ml-core", ""),
        ("kernel-lt-modules", ""),
        ("kernel-rt-core", "+rt"),
        ("kernel-rt-debug-modules-core", "+rt-debug"),
        ("kernel-64k-modules-extra", "+64k"),
    ],
)
def test_the_packages_of_a_kernel_are_those_built_with_it(package: str, variant: str) -> None:
    release = f"5.14.0-{NEW}.x86_64"
    for other in ("", "+rt", "+rt-debug", "+64k"):
        assert is_kernel_package(package, release + other) is (other == variant)


@pytest.mark.parametrize(
    "package",
    ["kernel", "kernel-devel", "kernel-headers", "kernel-tools", "kernel-tools-libs",
     "kernel-srpm-macros", "kmod-nvidia", "kernel-modules-extra-matched", "akernel-core"],
)  # fmt: skip
def test_others_have_no_kernel(package: str) -> None:
    assert not is_kernel_package(package, f"5.14.0-{NEW}.x86_64")


@pytest.mark.parametrize(
    ("package", "has"),
    [("kernel-devel", True), ("kernel-rt-devel", True), ("kernel-64k-debug-devel", True),
     ("kernel-headers", False), ("kernel-devel-matched", False), ("glibc-devel", False)],
)  # fmt: skip
def test_headers_of_modules_are_not_those_of_the_c_library(
    package: str,
    has: bool,  # noqa: FBT001 - a column
) -> None:
    assert is_kernel_headers(package) is has


@pytest.mark.parametrize(
    ("name", "version", "release"),
    [
        ("kernel-core", f"5.14.0-{NEW}", f"5.14.0-{NEW}.x86_64"),
        ("kernel-rt-core", f"1:5.14.0-{NEW}", f"5.14.0-{NEW}.x86_64+rt"),
        ("kernel-ml-core", "6.17.1-1.el9.elrepo", "6.17.1-1.el9.elrepo.x86_64"),
        ("kernel-modules-core", "5.14.0-1", ""),
        ("kernel", "5.14.0-1", ""),
        ("bash", "5.1.8-9.el9", ""),
    ],
)
def test_the_release_of_a_locked_kernel(name: str, version: str, release: str) -> None:
    package = LockedPackage(name, version, "x86_64", "0" * 64, 1, "x.rpm", "rocky")
    assert release_of(package) == release
    assert release_of(replace(package, architecture="aarch64")) == release.replace(
        "x86_64", "aarch64"
    )


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("/usr/lib/firmware/amdgpu/gc_11_0_2_pfp.bin", "linux-firmware"),
        ("/usr/lib/firmware/nvidia/580.1/gsp_ga10x.bin", "nvidia-kmod-common"),
        ("libcuda.so.1", "nvidia-driver-cuda-libs"),
        ("libOpenCL.so.1", "the OpenCL loader (ocl-icd)"),
        ("libother.so.1", ""),
    ],
)
def test_who_brings_what_a_root_lacks(path: str, package: str) -> None:
    assert package in package_with(path)
    assert bool(package) is bool(package_with(path))
