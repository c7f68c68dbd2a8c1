# SPDX-License-Identifier: Apache-2.0
"""Kernel modules of a root: the `.modinfo` of their files, and the indexes of depmod(8)."""

from __future__ import annotations

import fnmatch
import lzma
import posixpath
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import zstandard

from imagebuilder.elf import read_elf
from imagebuilder.limited import UnpackError, unpack_gz, unpack_xz, unpack_zst
from imagebuilder.proof.facts import FileFacts
from imagebuilder.root import Root

FOLDER = "/usr/lib/modules"
NOT_UNPACKED = (lzma.LZMAError, zstandard.ZstdError, zlib.error, UnpackError)
# Appended by the kernel's scripts/sign-file; include/linux/module_signature.h.
SIGNED = b"~Module signature appended~\n"
# Suffixes of module files: uncompressed, or compressed by CONFIG_MODULE_COMPRESS_*.
ENDINGS = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")
# lzma, zlib and hashlib release the interpreter lock.
THREADS = 4
# PCI classes of accelerators (pci.ids): display (VGA, 3D, other), signal processing,
# processing accelerator, coprocessor.
CLASSES = ("030000", "030200", "038000", "118000", "120000", "0b4000")
WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Module:
    """A module file: every value of each key of its `.modinfo`, and whether it is signed.

    `problem` is why it could not be read, else "".
    """

    path: str
    info: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    signed: bool = False
    problem: str = ""

    def first(self, key: str) -> str:
        """The first value of a key, "" if it has none."""
        return next(iter(self.info.get(key, ())), "")

    @property
    def release(self) -> str:
        """The kernel that it was built for: the first word of its vermagic."""
        return (self.first("vermagic").split() or [""])[0]


def plain(name: str) -> str:
    """A module's name as the kernel spells it."""
    return name.replace("-", "_")


def read_options(root: Root, release: str) -> tuple[str, frozenset[str]]:
    """The file with the options that a kernel was built with, and its lines; "" if it has none."""
    for path in (f"{FOLDER}/{release}/config", f"/boot/config-{release}"):
        if text := root.text(path):
            return path, frozenset(text.splitlines())
    return "", frozenset()


def matches_alias(name: str, pattern: str) -> bool:
    """Whether an alias with wildcards is for a device of this name; case does not matter.

    Drivers have hundreds, and to compile one takes a millisecond: most differ before a wildcard.
    """
    name, pattern = name.lower(), pattern.lower()
    return name.startswith(WILDCARD.split(pattern, 1)[0]) and fnmatch.fnmatchcase(name, pattern)


def module_name(path: str) -> str:
    """The module in a file, as the kernel spells it: `nvidia-uvm.ko.xz` -> nvidia_uvm."""
    return plain(posixpath.basename(path).partition(".ko")[0])


class ModuleReader(FileFacts[Module]):
    """Reads modules of a root."""

    def module(self, path: str) -> Module:
        return self.of(path, lambda each: read_module(self.root, each))

    def mentions(self, path: str, name: str) -> bool:
        """Whether a module contains a name; some options have no type (module_param_call())."""
        try:
            content = unpack(path, self.root.read(path) or b"")
        except NOT_UNPACKED:
            return False
        return f"{name}\0".encode() in content

    def modules(self, paths: Iterable[str]) -> list[Module]:
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(self.module, paths))


def read_module(root: Root, path: str) -> Module:
    content = root.read(path)
    if content is None:
        return Module(path, problem="is missing")
    try:
        unpacked = unpack(path, content)
        elf = read_elf(unpacked)
        section = elf.find(".modinfo") if elf else None
    except NOT_UNPACKED as error:
        return Module(path, problem=f"cannot be unpacked: {error}")
    except ValueError:
        return Module(path, problem="is damaged: it is not a complete ELF file")
    if elf is None:
        return Module(path, problem="is not an ELF file")
    if section is None:
        return Module(path, problem="has no .modinfo section")
    info: dict[str, list[str]] = {}
    for entry in bytes(elf.content(section)).split(b"\0"):
        key, is_set, value = entry.decode(errors="replace").partition("=")
        if is_set:
            info.setdefault(key, []).append(value)
    return Module(path, {k: tuple(v) for k, v in info.items()}, unpacked.endswith(SIGNED))


def unpack(path: str, content: bytes) -> bytes:
    unpackers: Mapping[str, Callable[[bytes], bytes]] = {
        ".xz": unpack_xz, ".gz": unpack_gz, ".zst": unpack_zst,
    }  # fmt: skip
    return unpackers.get(posixpath.splitext(path)[1], bytes)(content)


@dataclass(frozen=True)
class Kernel:
    """The modules of the kernel `release` in a root, as modprobe(8) finds them."""

    reader: ModuleReader
    release: str

    @property
    def root(self) -> Root:
        return self.reader.root

    @property
    def folder(self) -> str:
        return f"{FOLDER}/{self.release}"

    @cached_property
    def files(self) -> tuple[str, ...]:
        return tuple(p for p in self.root.walk(self.folder) if p.endswith(ENDINGS))

    @cached_property
    def outside(self) -> tuple[str, ...]:
        """The files of modules that are not in the kernel's own tree."""
        return tuple(p for p in self.files if not p.startswith(f"{self.folder}/kernel/"))

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """The file of each module: the one that depmod chose, else any of its name."""
        return {module_name(p): p for p in self.files} | {module_name(p): p for p in self.listed}

    @cached_property
    def listed(self) -> Mapping[str, tuple[str, ...]]:
        """modules.dep: each file with the files that it depends on, as absolute paths."""
        found = {}
        for line in self.lines("modules.dep"):
            name, is_entry, needs = line.partition(":")
            if is_entry:
                found[self.place(name)] = tuple(self.place(need) for need in needs.split())
        return found

    @cached_property
    def builtin(self) -> frozenset[str]:
        return frozenset(module_name(line) for line in self.lines("modules.builtin"))

    @cached_property
    def aliases(self) -> tuple[tuple[str, str], ...]:
        """(pattern, module) of modules.alias and of built-in modules, for PCI devices only."""
        found = []
        for line in self.lines("modules.alias"):
            words = line.split()
            if len(words) == 3 and words[0] == "alias" and words[1].startswith("pci:"):
                found.append((words[1], plain(words[2])))
        builtin = self.root.read(f"{self.folder}/modules.builtin.modinfo") or b""
        for entry in builtin.split(b"\0"):
            name, is_alias, pattern = entry.decode(errors="replace").partition(".alias=")
            if is_alias and pattern.startswith("pci:"):
                found.append((pattern, plain(name)))
        return tuple(found)

    @cached_property
    def named(self) -> frozenset[str]:
        """Other names of modules, without wildcards."""
        found = (line.split() for line in self.lines("modules.alias"))
        return frozenset(plain(words[1]) for words in found if len(words) == 3)

    def aliases_of(self, pci: str) -> list[str]:
        """What the kernel may call a device of unknown class: one name per class in CLASSES."""
        vendor, device = pci.upper().split(":")
        begin = f"pci:v0000{vendor}d0000{device}sv00000000sd00000000"
        return [f"{begin}bc{c[:2]}sc{c[2:4]}i{c[4:]}" for c in CLASSES]

    def claims(self, pci: str) -> dict[str, str]:
        """The modules that claim a device, each with the matching alias."""
        vendor, device = pci.upper().split(":")
        begins = tuple(f"pci:v0000{vendor}d{known}" for known in ("*", f"0000{device}"))
        candidates = [(p, module) for p, module in self.aliases if p.startswith(begins)]
        found: dict[str, str] = {}
        for name in self.aliases_of(pci):
            for pattern, module in candidates:
                if matches_alias(name, pattern):
                    found.setdefault(module, pattern)
        return found

    def needs(self, path: str) -> tuple[str, ...]:
        """The files of all dependencies of a module (modules.dep lists indirect ones too)."""
        return self.listed.get(path, ())

    def place(self, name: str) -> str:
        """The absolute path of a path in modules.dep."""
        return name if name.startswith("/") else f"{self.folder}/{name}"

    def lines(self, name: str) -> Iterator[str]:
        """The lines of one of depmod's files, without comments."""
        for line in self.root.text(f"{self.folder}/{name}").splitlines():
            if line.strip() and not line.startswith("#"):
                yield line.strip()
