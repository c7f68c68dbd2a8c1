# SPDX-License-Identifier: Apache-2.0
"""The recipes, bases and overlays of this project: sound, documented, keeping what they promise."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from imagebuilder import process
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.model import OverlayFile
from imagebuilder.recipe.positions import load_document
from imagebuilder.recipe.types import Overlay, Recipe
from imagebuilder.settings import Settings

CHECKOUT = Path(__file__).parents[2]
PROFILES = sorted(path.stem for path in (CHECKOUT / "recipes").glob("*.yaml"))
OVERLAYS = sorted(path.parent.name for path in (CHECKOUT / "overlays").glob("*/overlay.yaml"))
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJt6Tr9NVdSbpOyNCbLStsmOHO3rBIAZTTIPpDFoXy0x a@b"
FIND_GPUS = CHECKOUT / "overlays/llama-cpp/files/usr/libexec/llama-cpp/find-gpus"
LISTED = """Available devices:
  BLAS: BLAS (0 MiB, 0 MiB free)
"""


def load(profile: str, folder: Path, site: str = "") -> Recipe:
    """The shipped profile, with one ssh key and the given vars of a site."""
    file = folder / "site.yaml"
    file.write_text(f"ssh-keys: ['{KEY}']\nvars: {{{site}}}\n")
    settings = Settings(CHECKOUT, folder / "state", folder / "cache", file)
    return load_recipe(profile, settings, env={"HOME": str(folder)})


def overlay(recipe: Recipe, name: str) -> Overlay:
    """One overlay of the recipe."""
    return next(found for found in recipe.overlays if found.name == name)


def text(recipe: Recipe, name: str, target: str) -> str:
    """The text of a file as it lands in the root."""
    file = next(file for file in overlay(recipe, name).files if file.target == target)
    if file.content is not None:
        return file.content.decode()
    assert file.source is not None
    return file.source.read_text()


def targets(recipe: Recipe, name: str) -> dict[str, int]:
    """The modes of an overlay's files, by where they land."""
    return {file.target: file.mode for file in overlay(recipe, name).files}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_sound(profile: str, tmp_path: Path) -> None:
    recipe = load(profile, tmp_path)
    assert recipe.description
    assert [found.name for found in recipe.overlays][:3] == ["netboot", "ssh", "compute-node"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_tells_its_vars_and_checks_itself(name: str) -> None:
    folder = CHECKOUT / "overlays" / name
    told = (folder / "README.md").read_text()
    document = load_document(folder / "overlay.yaml", f"{name}/overlay.yaml")
    for var in OverlayFile.model_validate(document.value).vars:
        assert f"`{var}`" in told
    checks = "".join(path.read_text() for path in (folder / "checks").glob("test_*.py"))
    assert "@pytest.mark.static" in checks
    assert "@pytest.mark.boot" in checks


def test_only_testing_may_have_an_expired_release(tmp_path: Path) -> None:
    forky = load("generic", tmp_path).base.sources
    trixie = load("minimal", tmp_path).base.sources
    assert all(source.expired_release for source in forky)
    assert not any(source.expired_release for source in trixie)


@pytest.mark.parametrize("profile", ["generic", "minimal"])
def test_copyright_files_stay_and_documentation_does_not(profile: str, tmp_path: Path) -> None:
    excludes = load(profile, tmp_path).base.path_excludes

    def is_left_out(path: str) -> bool:
        return any(fnmatchcase(path, glob) for glob in excludes)

    assert not is_left_out("/usr/share/doc/curl/copyright")
    assert not is_left_out("/usr/share/doc/curl")
    assert not is_left_out("/usr/share/man/man1")
    for path in ("changelog.gz", "NEWS.Debian.gz", "examples/copyright", "contrib/x", "README"):
        assert is_left_out(f"/usr/share/doc/curl/{path}")
    assert is_left_out("/usr/share/man/man1/curl.1.gz")
    assert is_left_out("/usr/share/locale/de/LC_MESSAGES/dpkg.mo")


def test_keys_of_the_site_open_the_node_and_no_host_key_is_shipped(tmp_path: Path) -> None:
    recipe = load("minimal", tmp_path)
    assert text(recipe, "ssh", "/etc/ssh/authorized_keys") == f"{KEY}\n"
    assert not any("_key" in target and "host" in target for target in targets(recipe, "ssh"))


@pytest.mark.parametrize("allowed", [True, False])
def test_sudo_is_a_choice(allowed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    recipe = load("minimal", tmp_path, f"compute_sudo: {str(allowed).lower()}")
    assert targets(recipe, "compute-node").get("/etc/sudoers.d/compute-node") == (
        0o440 if allowed else None
    )


def test_the_user_is_named_once(tmp_path: Path) -> None:
    recipe = load("rx7600xt", tmp_path, "compute_user: ada, llama_rpc_server: true")
    assert overlay(recipe, "compute-node").users[0].name == "ada"
    assert "User=ada" in text(recipe, "llama-cpp", "/etc/systemd/system/llama-server.service")
    for found in recipe.overlays:
        for target in targets(recipe, found.name):
            words = text(recipe, found.name, target).replace("=", " ").split()
            assert "compute" not in words, target


@pytest.mark.parametrize(
    ("profile", "site", "guard"),
    [
        ("generic", "", None),
        ("generic", "llama_backends: [vulkan]", "Vulkan"),
        ("generic", "llama_backends: [rpc, blas]", None),
        ("rx7600xt", "", "ROCm Vulkan"),
        ("rx7600xt", "llama_allow_cpu: true", None),
    ],
)
def test_a_gpu_profile_refuses_the_processor(
    profile: str, site: str, guard: str | None, tmp_path: Path
) -> None:
    recipe = load(profile, tmp_path, site)
    unit = text(recipe, "llama-cpp", "/etc/systemd/system/llama-server.service").splitlines()
    found = [line for line in unit if line.startswith("ExecStartPre=")]
    assert found == ([f"ExecStartPre=/usr/libexec/llama-cpp/find-gpus {guard}"] if guard else [])
    assert "ExecStart=/usr/bin/llama-server" in unit


def test_backends_bring_their_packages(tmp_path: Path) -> None:
    plain = overlay(load("generic", tmp_path, "llama_backends: []"), "llama-cpp")
    assert plain.packages == ("llama.cpp-tools",)
    two_nodes = overlay(load("generic", tmp_path), "llama-cpp")
    added = set(two_nodes.packages) - set(plain.packages)
    assert added == {"libggml0-backend-rpc", "llama.cpp-tools-extra"}
    gpu = overlay(load("rx7600xt", tmp_path), "llama-cpp")
    assert {f"libggml0-backend-{name}" for name in ("hip", "vulkan", "rpc")} <= set(gpu.packages)


def test_vulkan_alone_brings_no_rocm(tmp_path: Path) -> None:
    board = load("ryzen-ai-max", tmp_path)
    packages = {name for found in board.overlays for name in found.packages}
    assert {"mesa-vulkan-drivers", "libggml0-backend-vulkan", "libxrt-npu2"} <= packages
    assert not {name for name in packages if "rocblas" in name or "hip" in name}
    assert "/dev/kfd" not in {d.path for d in overlay(board, "amdgpu-rocm").expectations.devices}


@pytest.mark.parametrize(("gib", "pages"), [("", "25165824"), ("amdgpu_gtt_gib: 48", "12582912")])
def test_unified_memory_is_told_in_pages(gib: str, pages: str, tmp_path: Path) -> None:
    words = overlay(load("ryzen-ai-max", tmp_path, gib), "amdgpu-rocm").cmdline
    assert words == (f"ttm.pages_limit={pages}", f"ttm.page_pool_size={pages}")
    assert overlay(load("rx7600xt", tmp_path), "amdgpu-rocm").cmdline == ()


@pytest.mark.parametrize("profile", ["a770", "rx7600xt", "ryzen-ai-max"])
def test_boards_with_usb4_are_joined_and_a_cable_is_never_waited_for(
    profile: str, tmp_path: Path
) -> None:
    recipe = load(profile, tmp_path, "thunderbolt_mtu: 9000")
    assert overlay(recipe, "thunderbolt-net").modules.load == ("thunderbolt_net",)
    for name in ("bridge.netdev", "bridge.network"):
        lines = text(recipe, "thunderbolt-net", f"/etc/systemd/network/60-thunderbolt-{name}")
        assert "MTUBytes=9000" in lines.splitlines()
        assert name.endswith("netdev") or "RequiredForOnline=no" in lines.splitlines()


def test_lending_is_off_and_fenced(tmp_path: Path) -> None:
    unit, target = "llama-rpc-server.service", "/etc/systemd/system/llama-rpc-server.service"
    assert target not in targets(load("generic", tmp_path, "llama_backends: []"), "llama-cpp")
    for profile in ("generic", "rx7600xt"):
        assert unit not in overlay(load(profile, tmp_path), "llama-cpp").units.enable
    lends = load("generic", tmp_path, "llama_rpc_server: true, llama_rpc_allow: [10.1.0.0/16]")
    assert unit in overlay(lends, "llama-cpp").units.enable
    assert "llama.cpp-tools-extra" in overlay(lends, "llama-cpp").packages
    lines = text(lends, "llama-cpp", target).splitlines()
    assert {"IPAddressDeny=any", "IPAddressAllow=localhost 10.1.0.0/16"} <= set(lines)


@pytest.mark.parametrize(
    ("lines", "status", "found"),
    [
        ("", 1, ""),
        ("  Vulkan0: llvmpipe (LLVM 21.1.8, 256 bits) (9 MiB, 9 MiB free)\n", 1, ""),
        ("  RPC0: node1:50052 (9 MiB, 9 MiB free)\n", 1, ""),
        ("  Vulkan0: AMD (RADV NAVI33) (9 MiB, 9 MiB free)\n", 0, "Vulkan0"),
        ("  Vulkan0: AMD (9 MiB)\n  ROCm0: AMD (9 MiB)\n  ROCm1: AMD (9 MiB)\n", 0, "ROCm0,ROCm1"),
    ],
)
def test_find_gpus_tells_a_gpu_from_the_processor(
    lines: str, status: int, found: str, tmp_path: Path
) -> None:
    fake = tmp_path / "llama-server"
    fake.write_text(
        f"#!/bin/sh\n[ -z \"${{LLAMA_ARG_RPC:-}}\" ] || exit 9\ncat <<'E'\n{LISTED}{lines}E\n"
    )
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin", "LLAMA_ARG_RPC": "node1:50052"}
    said = process.run([FIND_GPUS, "ROCm", "Vulkan"], env=env, check=False)
    assert (said.status, said.stdout.strip()) == (status, found)
    assert bool(said.stderr) == bool(status)
