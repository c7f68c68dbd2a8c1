# SPDX-License-Identifier: Apache-2.0
"""Helpers of started services that are gone, by the paths that programs contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.families.shipped import Checksum, ChecksumKind, ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.image.types import ImageLayer
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.programs.helpers import prove_helpers
from tests.unit.proof.trees import Content, Link, make_tree, running, subject

SERVER, SESSION, AUTH = "/usr/sbin/served", "/usr/lib/serve/session", "/usr/lib/serve/auth"
ELF = b"\x7fELF\0"
NAMES = {
    SERVER: ELF + f"\0usage: served\0{SESSION}\0".encode(),
    SESSION: ELF + f"\0{AUTH}\0".encode(),
    AUTH: ELF,
}


def shipping(root: Path, files: Mapping[str, Content], owners: Mapping[str, str]) -> Subject:
    """A subject whose packages ship these paths; a folder is one whose path ends with a slash."""
    given = subject(make_tree(root, {"/lib": Link("usr/lib"), "/usr/lib/": "", **files}))
    checksum = Checksum(ChecksumKind.MD5, "0" * 32)
    given.__dict__["shipped"] = {
        path.rstrip("/"): ShippedFile(package, None if path.endswith("/") else checksum)
        for path, package in owners.items()
    }
    return given


def starting(
    *words: str, jobs: tuple[str, ...] = ("a.service",), key: str = "ExecStart"
) -> Startup:
    values = {"Unit Load State": ("loaded",), "TriggeredBy": ("a.socket",)}
    unit = LoadedUnit("a.service", (), values, {key: (words or (SERVER,),)})
    return Startup(frozenset(jobs), {}, {"a.service": unit, "alias.service": unit}, ())


def told(given: Subject, startup: Startup) -> list[tuple[Level, str]]:
    return [(each.level, each.what) for each in prove_helpers(running(given, startup))]


@pytest.mark.parametrize(
    ("gone", "by"), [(SESSION, SERVER), (AUTH, SESSION)], ids=["helper", "helper-of-a-helper"]
)
def test_a_removed_helper_is_named_with_its_program(gone: str, by: str, tmp_path: Path) -> None:
    files = {path: content for path, content in NAMES.items() if path != gone}
    given = shipping(tmp_path, files, dict.fromkeys(NAMES, "serve"))
    ((level, what),) = told(given, starting())
    assert level is Level.FAULT
    assert what == (
        f"{gone} of the package serve is missing: {by}, which a.service needs, executes it by "
        "that path"
    )
    assert told(given, starting(jobs=("a.socket",)))
    assert told(given, starting(key="ExecStartPre"))
    assert not told(given, starting(jobs=("b.service",)))
    assert not told(given, starting(key="ExecStop"))


@pytest.mark.parametrize(
    ("server", "path", "package", "count"),
    [
        (b"\0%s\0", AUTH, "serve", 1),
        (b"\0%s\0", "/lib/serve/auth", "serve", 1),
        (b"\0%s\0", "/usr/lib/serve/plugin.so", "serve", 1),
        (b"\0%s\0", "/usr/lib/serve/plugin.so.2", "serve", 1),
        (b"\0%s\0", "/usr/libexec/serve-auth", "serve", 1),
        # Another package's helper is optional, and a package may not be installed at all.
        (b"\0%s\0", AUTH, "serve-more", 0),
        (b"\0%s\0", AUTH, "", 0),
        # Data, documentation, folders, and words of messages.
        (b"\0%s\0", "/usr/lib/serve/table.bin", "serve", 0),
        (b"\0%s\0", "/usr/lib/tmpfiles.d/serve.conf", "serve", 0),
        (b"\0%s\0", "/usr/share/serve/auth", "serve", 0),
        (b"\0%s\0", "/usr/lib/serve/auth/", "serve", 0),
        (b"\0cannot run %s\0", AUTH, "serve", 0),
        (b"\0%s: not found\0", AUTH, "serve", 0),
        (b"\0%s:/usr/bin\0", AUTH, "serve", 0),
    ],
)
def test_what_counts_as_a_helper(
    server: bytes, path: str, package: str, count: int, tmp_path: Path
) -> None:
    real = path.replace("/lib/", "/usr/lib/", 1) if path.startswith("/lib/") else path
    owners = {SERVER: "serve"} | ({real: package} if package else {})
    files = {SERVER: ELF + server % path.rstrip("/").encode()}
    assert len(told(shipping(tmp_path, files, owners), starting())) == count


def test_programs_that_are_not_read(tmp_path: Path) -> None:
    content = f"\0{AUTH}\0".encode()
    given = shipping(tmp_path, {SERVER: content}, {SERVER: "serve", AUTH: "serve"})
    assert not told(given, starting())  # a script
    given = shipping(tmp_path, {SERVER: ELF + content}, {AUTH: "serve"})
    assert not told(given, starting())  # of no package
    assert not told(given, starting("/usr/sbin/gone"))
    assert not told(given, starting("${PROGRAM}"))


@pytest.mark.parametrize(
    ("rule", "level"),
    [
        (AUTH, Level.WARNING),
        ("/usr/lib/serve", Level.WARNING),
        ("/usr/lib/s*/a*", Level.WARNING),
        ("/usr/lib/*", Level.WARNING),
        ("/usr/lib/serve/a", Level.FAULT),
        ("/usr/lib/serve/auth/x", Level.FAULT),
        ("/usr/*/auth", Level.FAULT),
    ],
)
def test_what_an_overlay_prunes_is_a_warning(rule: str, level: Level, tmp_path: Path) -> None:
    files = {path: content for path, content in NAMES.items() if path != AUTH}
    given = shipping(tmp_path, files, dict.fromkeys(NAMES, "serve"))
    layer = ImageLayer("prune", "", {"rules": [rule]}, 0, 0)
    pruned = replace(given, image=replace(given.image, layers=(layer,)))
    pruned.__dict__["shipped"] = given.shipped
    assert [found for found, _ in told(pruned, starting())] == [level]
