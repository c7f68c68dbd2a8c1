# SPDX-License-Identifier: Apache-2.0
"""A small root of a shipped recipe: its overlays' own files, and fixtures for what packages bring.

So a change in an overlay that lets a fault slip, or makes an alarm of what is good, is seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.digest import Json
from imagebuilder.proof.reading.modules import module_name
from imagebuilder.recipe.cards import find_chip
from imagebuilder.recipe.generated import all_files
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings
from imagebuilder.tree import Tree
from tests.faults.elf import C, library, program
from tests.faults.roots.made import Made, make_site_of
from tests.unit.proof.trees import Content, Info, Link, Program, kernel_files, make_tree
from tests.workshop import CHECKOUT

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJt6Tr9NVdSbpOyNCbLStsmOHO3rBIAZTTIPpDFoXy0x a@b"
LIB = "/usr/lib/x86_64-linux-gnu"
ICDS = "/usr/share/vulkan/icd.d"
DRM = "kernel/drivers/gpu/drm/drm.ko.xz"
# What matters here of systemd's 50-udev-default.rules as Debian configures it.
RULES = """\
SUBSYSTEM=="drm", KERNEL!="renderD*", GROUP="video"
SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"
SUBSYSTEM=="kfd", GROUP="render", MODE="0660"
SUBSYSTEM=="accel", KERNEL=="accel[0-9]*", GROUP="render", MODE="0660"
"""
# What llama-server prints where there is no device, and what its guard does.
LLAMA: Mapping[str, Json] = {
    "ldd -r": "",
    "/usr/bin/llama-server --list-devices": "Available devices:\n",
    "/usr/libexec/llama-cpp/find-gpus": {
        "status": 1,
        "stderr": "no device of kind ROCm Vulkan; llama.cpp would run on the processor",
    },
}


@dataclass(frozen=True)
class Small:
    """What a small root has beside its recipe: kernel modules (by path, with `.modinfo`; `needs` as
    depmod finds them), firmware, files, and what its programs say.
    """

    name: str
    profile: str
    kernel: str
    modules: Mapping[str, Info]
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    firmware: Sequence[str] = ()
    files: Mapping[str, Content] = field(default_factory=dict)
    wheels: Sequence[tuple[str, str, str]] = ()
    answers: Mapping[str, Json] = field(default_factory=dict)


def shipped(profile: str) -> Recipe:
    """The recipe as it is shipped, with a key to log in by."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        site = folder / "site.yaml"
        site.write_text(f"ssh-keys: ['{SSH_KEY}']\n")
        settings = Settings(CHECKOUT, folder / "state", folder / "cache", site)
        return load_recipe(profile, settings, env={"HOME": name})


def make_small(tree: Tree, small: Small) -> None:
    """Make the root, and enter it in the tree."""
    recipe = shipped(small.profile)
    made = Made(
        name=small.name,
        kernel=small.kernel,
        cmdline=recipe.cmdline,
        hardware=recipe.hardware,
        expectations=recipe.expectations,
        packages={},
        wheels=small.wheels,
        answers=small.answers,
    )
    _, root = make_site_of(tree, made)
    modules = {**small.modules, **others(recipe, small.modules)}
    make_tree(root, kernel_files(modules, release=small.kernel, needs=small.needs))
    make_tree(root, system_files(recipe))
    make_tree(root, {f"/usr/lib/firmware/{name}": f"{name}\n" for name in small.firmware})
    make_tree(root, small.files)
    put_overlays(root, recipe)
    for folder in ("usr/bin", "usr/sbin"):
        for path in (root / folder).glob("*"):
            path.chmod(path.stat().st_mode | 0o111)


def others(recipe: Recipe, there: Mapping[str, Info]) -> dict[str, Info]:
    """The modules that overlays need by name and that have nothing to tell."""
    known = {module_name(path) for path in there}
    return {
        f"kernel/drivers/others/{name}.ko.xz": {"name": name}
        for name in recipe.expectations.modules
        if name not in known
    }


def claims(pci: str, firmware: Sequence[str] = ()) -> Info:
    """`.modinfo` of a driver for this device that asks for this firmware."""
    chip = find_chip(pci)
    assert chip is not None
    vendor, device = pci.upper().split(":")
    alias = f"pci:v0000{vendor}d0000{device}sv*sd*bc*sc*i*"
    return {"alias": alias, **({"firmware": list(firmware)} if firmware else {})}


def system_files(recipe: Recipe) -> dict[str, Content]:
    """What every Debian has of what is asked: accounts, rules, a C library, a shell."""
    users = [user for overlay in recipe.overlays for user in overlay.users]
    names = [group.name for overlay in recipe.overlays for group in overlay.groups]
    names += [group for user in users for group in user.groups if group not in names]
    members = {n: ",".join(u.name for u in users if n in u.groups) for n in names}
    passwd = "root:x:0:0:root:/root:/bin/bash\n"
    group = "root:x:0:\n"
    for user in users:
        passwd += f"{user.name}:x:{user.uid}:{user.uid}::{user.home}:{user.shell}\n"
        group += f"{user.name}:x:{user.uid}:\n"
    for number, name in enumerate(names, 100):
        group += f"{name}:x:{number}:{members[name]}\n"
    return {
        "/lib": Link("usr/lib"),
        "/lib64": Link("usr/lib64"),
        "/bin": Link("usr/bin"),
        "/sbin": Link("usr/sbin"),
        "/etc/passwd": passwd,
        "/etc/group": group,
        "/usr/lib/udev/rules.d/50-udev-default.rules": RULES,
        "/usr/lib64/ld-linux-x86-64.so.2": Link(f"..{LIB.removeprefix('/usr')}/ld.so"),
        f"{LIB}/ld.so": library("ld-linux-x86-64.so.2"),
        f"{LIB}/{C}": library(C),
        "/usr/bin/sh": program(),
        "/usr/bin/test": program(),
    }


def put_overlays(root: Path, recipe: Recipe) -> None:
    """The files that the overlays bring, with their modes."""
    for overlay in recipe.overlays:
        for file in all_files(overlay):
            place = root / file.target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)  # it may be a hard link to a good root
            if file.link is not None:
                place.symlink_to(file.link)
                continue
            content = file.content
            if content is None:
                assert file.source is not None
                content = file.source.read_bytes()
            place.write_bytes(content)
            place.chmod(file.mode)


def libraries(*paths: str) -> dict[str, Content]:
    """Libraries that need nothing but the C library."""
    return {path: library(path) for path in paths}


def vulkan(name: str) -> dict[str, Content]:
    """Mesa's driver `name` for Vulkan, its ICD file and the loader."""
    driver = f"{LIB}/libvulkan_{name}.so"
    icd = {"ICD": {"api_version": "1.4.318", "library_path": driver}}
    return {
        f"{LIB}/libvulkan.so.1": library("libvulkan.so.1"),
        driver: library(driver),
        f"{ICDS}/{name}_icd.json": json.dumps(icd),
    }


def llama_cpp() -> dict[str, Content]:
    """llama.cpp with its plugin for Vulkan."""
    plugin = f"{LIB}/ggml/backends0/libggml-vulkan.so"
    return {
        "/usr/bin/llama-server": program(),
        "/usr/bin/ggml-rpc-server": Program(),
        plugin: library(plugin, ["libvulkan.so.1"]),
    }
