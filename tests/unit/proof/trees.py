# SPDX-License-Identifier: Apache-2.0
"""Small roots to prove things about: fake trees, subjects and kernel modules."""

from __future__ import annotations

import gzip
import lzma
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import zstandard
from pydantic import JsonValue

from imagebuilder.image.proof import Finding, Level
from imagebuilder.image.types import ImageLayer, ImageWheel
from imagebuilder.process import Completed
from imagebuilder.proof.reading.provenance import Provenance
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject, no_provenance
from imagebuilder.recipe.engines import Engines, load_engines
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.types import Hardware
from imagebuilder.root import Root
from tests.fixtures import elf as fixtures
from tests.images import IMAGE
from tests.workshop import SHIPPED_OVERLAYS

KERNEL = "7.2.6+deb14-amd64"


@dataclass(frozen=True)
class Link:
    """A symlink with this text."""

    to: str


@dataclass(frozen=True)
class Program:
    """A file that may be executed."""

    content: str = "#!/bin/sh\n"


@dataclass
class Sandbox:
    """Stands for the sandbox of a Subject: records what it is asked, answers what it was told.

    `answers` maps the beginning of a command (words joined by a blank) to what it leaves, the
    longest beginning first; what is not listed is not there (exit status 127).
    """

    answers: Mapping[str, Completed | str] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], *, seconds: int = 60) -> Completed:
        assert seconds > 0
        self.asked.append(tuple(argv))
        command = " ".join(argv)
        for begin in sorted(self.answers, key=len, reverse=True):
            if command.startswith(begin):
                answer = self.answers[begin]
                return Completed(0, answer, "") if isinstance(answer, str) else answer
        return Completed(127, "", f"{argv[0]}: not found")


# What a file of a tree is; what `.modinfo` of a module says.
Content = bytes | str | Link | Program
Info = Mapping[str, str | Sequence[str]]


def make_tree(path: Path, files: Mapping[str, Content]) -> Root:
    """A root at `path` with these files (absolute paths in it); a path that ends with `/` is an
    empty folder.  What is there already stays, so a tree can be made in parts.
    """
    for name, content in files.items():
        place = path / name.strip("/")
        if name.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        match content:
            case Link(to):
                place.symlink_to(to)
            case Program(text):
                place.write_text(text)
                place.chmod(0o755)
            case bytes():
                place.write_bytes(content)
            case str():
                place.write_text(content)
    return Root(path)


def subject(
    root: Root | Path,
    *,
    hardware: Iterable[Hardware | tuple[str, str, str]] = (),
    expectations: Expectations | None = None,
    run: Callable[..., Completed] | None = None,
    kernel: str = KERNEL,
    cmdline: tuple[str, ...] = (),
    wheels: Mapping[str, Mapping[str, str]] | None = None,
    users: Mapping[str, Iterable[str]] | None = None,
    engines: Engines | None = None,
    trace: Callable[[], Provenance | None] = no_provenance,
    **parts: Any,  # noqa: ANN401 - as many fields as Image has
) -> Subject:
    """A Subject about `root`; hardware may be (pci, name, target); `run` a Sandbox, else one that
    knows no command; `wheels` versions by environment and name, `users` their groups, `engines`
    those that overlays describe, else the shipped ones.
    """
    declared: dict[str, JsonValue] = {
        name: [1000, "/nonexistent", "/bin/sh", [*groups]] for name, groups in (users or {}).items()
    }
    image = replace(
        IMAGE,
        hardware=tuple(h if isinstance(h, Hardware) else Hardware(*h) for h in hardware),
        expectations=expectations or Expectations(),
        kernel=replace(IMAGE.kernel, release=kernel),
        boot=replace(IMAGE.boot, cmdline=cmdline),
        wheels=tuple(
            ImageWheel(name, version, "", path)
            for path, versions in (wheels or {}).items()
            for name, version in versions.items()
        ),
        layers=(ImageLayer("configure", "", {"users": declared}, 0, 0),),
        **parts,
    )
    return Subject(
        image,
        root if isinstance(root, Root) else Root(root),
        run or Sandbox(),
        load_engines(SHIPPED_OVERLAYS, ("llama-cpp", "vllm")) if engines is None else engines,
        trace,
    )


def running(given: Subject, startup: Startup) -> Subject:
    """The same subject, of whose systemd this is known."""
    given.__dict__["startup"] = startup
    given.made.results.clear()
    return given


def at(findings: Iterable[Finding], level: Level) -> list[Finding]:
    """The findings of that level."""
    return [finding for finding in findings if finding.level is level]


def faults(findings: Iterable[Finding]) -> list[str]:
    """What the faults say; each must have a hint."""
    listed = at(findings, Level.FAULT)
    assert all(finding.hint for finding in listed), "a fault without a hint"
    return [finding.what for finding in listed]


def warnings(findings: Iterable[Finding]) -> list[str]:
    """What the warnings say."""
    return [finding.what for finding in at(findings, Level.WARNING)]


def facts(findings: Iterable[Finding]) -> list[str]:
    """What the facts say."""
    return [finding.what for finding in at(findings, Level.FACT)]


def make_module(
    info: Info | None = None,
    *,
    release: str = KERNEL,
    signed: bool = False,
) -> bytes:
    """A kernel module as far as a reader of `.modinfo` sees it: a relocatable ELF file for x86-64.

    `info` adds to, or replaces, `vermagic` and `license`; a list gives a key more than once.
    `signed` appends what the kernel's sign-file does, with a signature of nonsense.
    """
    said: dict[str, str | Sequence[str]] = {
        "license": "GPL",
        "vermagic": f"{release} SMP preempt mod_unload modversions ",
    }
    said |= info or {}
    elf = fixtures.make_module(said)
    if signed:
        # struct module_signature: algorithms and identifier unused, PKCS#7, its length.
        elf += b"nonsense" + struct.pack(">5B3xI", 0, 0, 2, 0, 0, 8)
        elf += b"~Module signature appended~\n"
    return elf


def make_vmlinuz(release: str = KERNEL) -> bytes:
    """A kernel image for x86 as far as its header goes: magic and version."""
    image = bytearray(0x400)
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x20E, 0x100)
    text = f"{release} (somebody@example.org) #1 SMP\0".encode()
    image[0x300 : 0x300 + len(text)] = text
    return bytes(image)


def kernel_files(
    modules: Mapping[str, Info],
    *,
    release: str = KERNEL,
    built_for: str = "",
    needs: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Content]:
    """The files of a kernel with these modules, as depmod(8) leaves them, for make_tree().

    A module is named by its path below the kernel's folder (`kernel/drivers/x.ko.xz` is packed so)
    and has this `.modinfo`; `needs` are the paths of those it depends on; `built_for` is another
    kernel they were built for.
    """
    folder = f"/usr/lib/modules/{release}"
    packers: dict[str, Callable[[bytes], bytes]] = {
        ".xz": lzma.compress,
        ".gz": gzip.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    found: dict[str, Content] = {f"{folder}/vmlinuz": make_vmlinuz(release)}
    dep, alias = [], ["# Aliases extracted from modules themselves."]
    for path, info in modules.items():
        elf = make_module(info, release=built_for or release)
        found[f"{folder}/{path}"] = packers.get(Path(path).suffix, bytes)(elf)
        dep.append(f"{path}: {' '.join((needs or {}).get(path, ()))}".strip())
        aliases = info.get("alias", ())
        name = Path(path).name.partition(".ko")[0].replace("-", "_")
        for each in [aliases] if isinstance(aliases, str) else aliases:
            alias.append(f"alias {each} {name}")
    found[f"{folder}/modules.dep"] = "\n".join(dep) + "\n"
    found[f"{folder}/modules.alias"] = "\n".join(alias) + "\n"
    found[f"{folder}/modules.builtin"] = "kernel/drivers/block/loop.ko\n"
    return found
