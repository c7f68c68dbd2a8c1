# SPDX-License-Identifier: Apache-2.0
"""Good files to begin with, of every kind."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from imagebuilder.lock.file import render_lock
from imagebuilder.lock.types import (
    Lock,
    LockedBuild,
    LockedFile,
    LockedLayer,
    LockedPackage,
    LockedPython,
    LockedSource,
    LockedSourcePackage,
    LockedWheel,
)
from imagebuilder.nightly.types import NIGHTLY_RUN
from imagebuilder.publish.journal import Event
from imagebuilder.report.types import REPORT
from tests.unit.nightly import samples as nights
from tests.unit.report import samples as reports

PROJECT = Path(__file__).parents[2]
SHA = "ab" * 32
PROFILE, VERSION = "generic", "v1"

NODES = b"""
defaults: {channel: stable, console: [ttyS0]}
groups:
  rack: {profile: generic, root: nfs, vars: {rank: 1, list: [a, b]}}
nodes:
  n1: {macs: ["52:54:00:77:00:01"], group: rack, address: 10.0.0.2}
  n2: {macs: ["52:54:00:77:00:02", "52:54:00:77:00:03"], profile: rx, version: v1}
menu: {default: local, timeout: 5}
"""
SITE = b"""
ssh-keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMyWUtAzrUkZQVTgFRJsYdPRcXUAoWTvwMhPNWRrVgBu me"]
mirrors: {debian: "http://mirror.example/debian"}
expired-release: {trixie: {accept-days: 9, because: it stands still}}
vars: {label: other}
"""
TEMPLATE = (
    b"{% for x in backends if x != 'cpu' %}{{ label|upper }}={{ 3 * 4 }}\n{% endfor %}{{ suite }}\n"
)
MANIFEST: dict[str, object] = {
    "schema": 1, "profile": PROFILE, "version": VERSION, "epoch": 1760000000, "description": "",
    "base": "debian-trixie", "distribution": "debian", "suite": "trixie", "architecture": "amd64",
    "overlays": ["ssh"], "listens": ["22/tcp"], "expectations": {},
    "hardware": [{"pci": "1002:7480", "name": "Radeon", "target": "gfx1102"}],
    "boot": {"root": "nfs", "cmdline": ["ip=dhcp", "quiet"]},
    "root": {"commit": SHA, "layer": SHA, "size": 1000},
    "kernel": {"release": "6.12", "vmlinuz": {"sha256": SHA, "size": 1},
               "initrd": {"sha256": SHA, "size": 2}},
    "sources": [{"id": "debian", "suite": "trixie", "components": ["main"], "date": 1,
                 "release-sha256": SHA, "snapshot": "", "expired-because": "", "instead": "x"}],
    "layers": [{"title": "configure ssh", "digest": SHA, "size": 1, "files": 1, "inputs": {
        "step": "config", "groups": {"video": [None, True]},
        "users": {"me": [1000, "/home/me", "/bin/sh", ["video"], False, ""]},
        "units": {"enable": ["a.service"], "disable": [], "mask": ["c.timer"]}}}],
    "slimmed": {"replaced": 1},
    "packages": [{"name": "libc6", "version": "2.41", "architecture": "amd64", "sha256": SHA,
                  "source": "debian", "layer": "base", "installed-size": 5}],
    "builds": [{"name": "b", "layer": "ssh",
                "packages": [{"name": "gcc", "version": "1", "sha256": SHA, "source": "debian"}],
                "sources": [{"name": "s", "version": "1", "file": "f", "sha256": SHA}],
                "wheels": [{"name": "w", "version": "1", "sha256": SHA}]}],
    "wheels": [{"name": "torch", "version": "2", "sha256": SHA, "path": "/opt/v"}],
    "proof": {"image": "x", "ok": False, "answers": [{"question": "kernel", "result": "failed",
              "findings": [{"level": "fault", "what": "w", "hint": "h", "evidence": [
                  {"path": "/x", "section": "", "symbol": "", "said": ""}]}]}]},
}  # fmt: skip
RELEASE = b"""Origin: Debian
Label: Debian
Suite: stable
Codename: trixie
Date: Sat, 06 Sep 2025 10:28:57 UTC
Valid-Until: Sat, 13 Sep 2025 10:28:57 UTC
Architectures: all amd64
SHA256:
 %s 1 main/binary-amd64/Packages
""" % SHA.encode()
SOURCES = b"""Types: deb deb-src
URIs: http://mirror.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

deb [signed-by=/x] http://mirror.example/ubuntu noble main
"""
SEEN = {
    "mac": "52:54:00:77:00:01", "node": "n1", "profile": PROFILE, "version": VERSION,
    "address": "10.0.0.2", "stage": "ready", "root": "nfs", "first": "2026-01-01T00:00:00+00:00",
    "last": "2026-01-02T00:00:00+00:00", "given": "0123456789abcdef",
}  # fmt: skip
LIVE = {
    "name": "ubuntu", "title": "Ubuntu", "kind": "casper", "iso": "u.iso", "iso_size": 1,
    "iso_sha256": SHA, "autoinstall": True, "seed": SHA, "memory": 1,
    "added": "2026-01-01T00:00:00Z",
}  # fmt: skip
GIVEN = {"words": ["quiet"], "root": "nfs", "files": {"/etc/hostname": "-0644 0:0 ab"}}
RECORD = {"title": "t", "size": 1, "files": 1, "seconds": 0.5, "facts": {"a": 1}}
TICKETS = [{
    "secret": "ab" * 16, "mac": "52:54:00:77:00:01", "time": "2026-01-01T00:00:00+00:00",
    "release": f"{PROFILE}@{VERSION}",
}]  # fmt: skip
REPORTS = (
    b'{"time":"2026-01-01T00:00:00+00:00","address":"10.0.0.2",'
    b'"uri":"/nodes/52-54-00-77-00-01/boot.ipxe","ticket":"%s"}\n'
    b'{"time":"2026-01-01T00:00:09+00:00","address":"10.0.0.2",'
    b'"uri":"/report/%s/0123456789abcdef/generic/v1?mac=52:54:00:77:00:01&stage=ready",'
    b'"agent":"curl"}\n'
) % (b"ab" * 16, b"ab" * 16)
LEASES = b"1790000000 52:54:00:77:00:01 10.0.0.2 n1 01:52\n0 52:54:00:77:00:02 10.0.0.3 * *\n"
LINKS = [{
    "ifname": "eth1", "flags": ["UP"], "address": "52:54:00:77:00:01",
    "addr_info": [{"family": "inet", "local": "10.0.0.1", "prefixlen": 24}],
}]  # fmt: skip


def lock_text() -> bytes:
    """A lock with one of everything."""
    package = LockedPackage("libc6", "2.41", "amd64", SHA, 1, "pool/l.deb", "debian")
    python = LockedPython("/opt/v", SHA, "3.13", (LockedWheel("w", "1", "w.whl", SHA, 1),))
    source = LockedSourcePackage("s", "1", (LockedFile("s.dsc", SHA, 1, "pool/s.dsc"),), "debian")
    build = LockedBuild("b", ("gcc",), ("s",), (package,), (source,), python)
    layers = (
        LockedLayer("", ("linux",), (package,), (), 5),
        LockedLayer("a", ("hello",), (package,), (python,), 5, (build,)),
    )
    sources = (LockedSource("debian", "trixie", ("main",), 5, 9, SHA, "debian", SHA),)
    return render_lock(Lock("p", "amd64", "debian-trixie", 5, sources, layers)).encode()


def report_text() -> bytes:
    """A report of a boot test."""
    return json.dumps(REPORT.encode(reports.passed()), indent=1).encode()


def night_text() -> bytes:
    """A night with one profile that went well and one that failed."""
    return NIGHTLY_RUN.render(nights.night(nights.unchanged())).encode()


def journal_text() -> bytes:
    """A journal of three events."""
    events = (Event("promote", PROFILE, f"v{n}", "stable", f"v{n - 1}") for n in (1, 2, 3))
    return b"".join(json.dumps(asdict(event)).encode() + b"\n" for event in events)


def shipped(*globs: str) -> tuple[bytes, ...]:
    """Files of this project."""
    return tuple(path.read_bytes() for glob in globs for path in sorted(PROJECT.glob(glob)))
