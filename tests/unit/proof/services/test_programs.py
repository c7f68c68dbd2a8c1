# SPDX-License-Identifier: Apache-2.0
"""What a service may execute, and watchdogs that nobody feeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.environment import Variable
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.services.programs import (
    prove_caches,
    prove_executable,
    prove_readiness,
    prove_watchdog,
)
from imagebuilder.root import Root
from tests.fixtures.elf import LOADER, make_elf
from tests.unit.proof.trees import Content, Link, Program, faults, make_tree, subject, warnings

GUARD, SERVER = "/usr/libexec/a/find", "/usr/bin/serve"
UNIT = "/etc/systemd/system/a.service"
FILES: Mapping[str, Content] = {
    "/lib64": Link("usr/lib64"),
    "/bin": Link("usr/bin"),
    LOADER.replace("/lib64", "/usr/lib64"): b"loader",
    "/usr/bin/sh": make_elf(interpreter=LOADER),
    SERVER: make_elf(interpreter=LOADER),
    GUARD: Program("#!/bin/sh\n"),
}


def unit(values: Mapping[str, str], *program: str) -> LoadedUnit:
    loaded = {key: (value,) for key, value in values.items()}
    commands = {"ExecStartPre": ((GUARD,),), "ExecStart": (program or (SERVER,),)}
    return LoadedUnit("a.service", (UNIT,), loaded, commands)


@pytest.mark.parametrize(
    ("denied", "allowed", "said"),
    [
        ("", "", ""),
        ("/", "/usr/bin /usr/lib /usr/lib64", f"{GUARD} (ExecStartPre=): NoExecPaths=/ forbids it"),
        ("/", "/usr", ""),
        ("/", "/usr/bin /usr/libexec /usr/lib64", ""),
        ("/", "/usr/bin /usr/libexec /lib64", ""),
        ("/", "/usr/bin /usr/libexec", f"forbids its loader {LOADER}"),
        ("/", "/usr/libexec /usr/lib64 /usr/bin/serve", "forbids its interpreter /bin/sh"),
        ("/usr/libexec", "/", f"{GUARD} (ExecStartPre=): NoExecPaths=/usr/libexec"),
        ("/usr/libexec", "/usr/libexec/a", ""),
        ("-/usr/libexecutable /home /tmp", "", ""),
    ],
)
def test_programs_that_a_service_may_not_execute(
    denied: str, allowed: str, said: str, tmp_path: Path
) -> None:
    values = {key: v for key, v in (("NoExecPaths", denied), ("ExecPaths", allowed)) if v}
    found = faults(prove_executable(make_tree(tmp_path, FILES), unit(values)))
    assert any(said in what for what in found) if said else not found


@pytest.mark.parametrize(("prefix", "told"), [("", 1), ("-", 0), ("+", 0), ("@", 1), (":-", 0)])
def test_commands_that_may_fail_or_run_outside(prefix: str, told: int, tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {**FILES, UNIT: f"[Service]\nExecStartPre={prefix}{GUARD}\n"})
    values = {"NoExecPaths": "/", "ExecPaths": "/usr/bin /usr/lib64"}
    assert len(faults(prove_executable(tree, unit(values)))) == told


@pytest.mark.parametrize(
    ("values", "program", "level"),
    [
        ({"WatchdogSec": "30s", "Type": "simple"}, b"\x7fELF serve", Level.FAULT),
        ({"WatchdogSec": "30s", "Type": "exec"}, b"#!/bin/sh\nexec serve\n", Level.WARNING),
        ({"WatchdogSec": "30s", "Type": "simple"}, b"\x7fELF WATCHDOG=1", None),
        ({"WatchdogSec": "30s", "Type": "simple"}, b"\x7fELF libsystemd.so.0", None),
        ({"WatchdogSec": "30s", "Type": "exec"}, b"#!/usr/bin/python3\nimport sdnotify\n", None),
        ({"WatchdogSec": "30s", "Type": "notify"}, b"\x7fELF serve", None),
        ({"WatchdogSec": "30s", "Type": "oneshot"}, b"\x7fELF serve", None),
        ({"WatchdogSec": "0", "Type": "simple"}, b"\x7fELF serve", None),
        ({"WatchdogSec": "infinity", "Type": "simple"}, b"\x7fELF serve", None),
        ({"Type": "simple"}, b"\x7fELF serve", None),
    ],
)
def test_watchdogs(
    values: Mapping[str, str], program: bytes, level: Level | None, tmp_path: Path
) -> None:
    found = list(prove_watchdog(make_tree(tmp_path, {SERVER: program}), unit(values)))
    assert [one.level for one in found] == ([level] if level else [])


def test_a_program_that_another_one_starts_may_feed_the_watchdog(tmp_path: Path) -> None:
    files = {"/usr/bin/nice": b"\x7fELF", SERVER: b"\x7fELF WATCHDOG=1"}
    started = unit({"WatchdogSec": "30s"}, "/usr/bin/nice", "-n5", SERVER)
    assert not list(prove_watchdog(make_tree(tmp_path, files), started))
    assert not list(prove_watchdog(Root(tmp_path), unit({"WatchdogSec": "30s"}, "${PROGRAM}")))


@pytest.mark.parametrize(
    ("kind", "words", "content", "level"),
    [
        ("notify", (SERVER,), b"\x7fELF serve", Level.FAULT),
        ("notify-reload", (SERVER,), b"\x7fELF serve", Level.FAULT),
        ("notify", (SERVER,), b"\x7fELF READY=1 NOTIFY_SOCKET", None),
        ("notify", (SERVER,), b"#!/bin/sh\nexec serve\n", Level.WARNING),
        ("notify", (SERVER,), b"#!/bin/sh\nsystemd-notify --ready # NOTIFY_SOCKET\n", None),
        ("notify", ("/usr/bin/python3.13", "-m", "serve"), b"\x7fELF", Level.WARNING),
        ("simple", (SERVER,), b"\x7fELF serve", None),
        ("notify", ("${PROGRAM}",), b"", None),
    ],
)
def test_programs_that_never_say_that_they_are_ready(
    kind: str, words: tuple[str, ...], content: bytes, level: Level | None, tmp_path: Path
) -> None:
    root = make_tree(tmp_path, {words[0]: content} if content else {})
    found = list(prove_readiness(root, unit({"Type": kind}, *words)))
    assert [one.level for one in found] == ([level] if level else [])


@pytest.mark.parametrize(
    ("denied", "allowed", "name", "told"),
    [
        ("/tmp /var", "", "TRITON_CACHE_DIR", 1),
        ("/tmp /var", "/var/cache/a", "TRITON_CACHE_DIR", 0),
        ("/tmp", "", "TRITON_CACHE_DIR", 0),
        ("", "", "TRITON_CACHE_DIR", 0),
        ("/var", "", "DATA_DIR", 0),
    ],
)
def test_libraries_that_a_service_makes(
    denied: str, allowed: str, name: str, told: int, tmp_path: Path
) -> None:
    loaded = unit({"NoExecPaths": denied, "ExecPaths": allowed})
    environment = {name: Variable("/var/cache/a/triton", "/etc/default/a")}
    assert len(faults(prove_caches(subject(tmp_path), loaded, environment))) == told


@pytest.mark.parametrize(
    ("fstab", "values", "told"),
    [
        ("tmpfs /var/cache tmpfs nosuid,noexec 0 0", {}, 1),
        ("tmpfs /var/cache tmpfs user 0 0", {}, 1),
        ("tmpfs /var/cache tmpfs user,exec 0 0", {}, 0),
        ("tmpfs /var/cache tmpfs nosuid 0 0", {}, 0),
        ("tmpfs /var/tmp tmpfs noexec 0 0", {}, 0),
        ("tmpfs /var tmpfs noexec 0 0\ntmpfs /var/cache tmpfs nodev 0 0", {}, 0),
        ("tmpfs /var tmpfs noexec 0 0", {"BindPaths": "/models/cache:/var/cache/a"}, 0),
        ("tmpfs /var tmpfs noexec 0 0", {"TemporaryFileSystem": "/var/cache"}, 0),
    ],
)
def test_libraries_on_a_file_system_without_execution(
    fstab: str, values: Mapping[str, str], told: int, tmp_path: Path
) -> None:
    about = subject(make_tree(tmp_path, {"/etc/fstab": f"{fstab}\n"}))
    environment = {"TRITON_CACHE_DIR": Variable("/var/cache/a/triton", "/etc/default/a")}
    found = warnings(prove_caches(about, unit(values), environment))
    assert ["is mounted with noexec" in what for what in found] == [True] * told
