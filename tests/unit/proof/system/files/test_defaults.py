# SPDX-License-Identifier: Apache-2.0
"""Variables in /etc/default that nothing reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from imagebuilder.families.shipped import Checksum, ChecksumKind, ShippedFile
from imagebuilder.proof.system.files.unread import prove_defaults
from tests.unit.proof.trees import Content, Program, make_tree, subject

FILE = "/etc/default/nfs-common"
TEXT = "NEED_STATD=\nSTATDOPTS='--port 32765'\n"
UNIT = "/usr/lib/systemd/system/statd.service"


def found(tmp_path: Path, files: dict[str, Content], shipped: str | None = None) -> list[str]:
    given = subject(make_tree(tmp_path, {FILE: TEXT, **files}))
    checksum = hashlib.md5((shipped or "").encode()).hexdigest()
    known = {FILE: ShippedFile("nfs-common", Checksum(ChecksumKind.MD5, checksum), config=True)}
    given.__dict__["shipped"] = {} if shipped is None else known
    given.__dict__["packages"] = {"nfs-common": "1:2.8.4-1"}
    return [finding.what for finding in prove_defaults(given)]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {UNIT: "[Service]\nExecStart=/usr/sbin/rpc.statd\n"},
        # No systemd of this image runs a script of init, and this one reads another variable.
        {"/etc/init.d/nfs-common": Program(f"#!/bin/sh\n. {FILE}\nrpc.statd $STATDOPTS\n")},
        {"/usr/sbin/start-statd": Program(f"#!/bin/sh\n. {FILE}\n[ $NEED_STATD = yes ]\n")},
        {"/usr/share/doc/nfs/README": f"{FILE} STATDOPTS\n"},
    ],
)
def test_a_variable_that_nothing_reads(files: dict[str, Content], tmp_path: Path) -> None:
    (what,) = found(tmp_path, files)
    assert what.startswith(f"STATDOPTS in {FILE} has no effect")


@pytest.mark.parametrize(
    "files",
    [
        {UNIT: f"[Service]\nEnvironmentFile=-{FILE}\n"},
        {"/usr/sbin/start-statd": Program(f"#!/bin/sh\n. {FILE}\nrpc.statd $STATDOPTS\n")},
        {"/usr/sbin/start-statd": Program(f"#!/bin/sh\nset -a\n. {FILE}\nexec rpc.statd\n")},
        {"/usr/bin/statd": Program(f"\x7fELF {FILE}")},
        {"/etc/pam.d/login": f"session required pam_env.so envfile={FILE}\n"},
        {"/usr/lib/lsb/start": Program("#!/bin/sh\n. /etc/default/$1 # nfs-common\n$STATDOPTS\n")},
        {FILE: "NEED_STATD=\n# STATDOPTS=x\n"},
    ],
)
def test_variables_that_something_reads(files: dict[str, Content], tmp_path: Path) -> None:
    assert found(tmp_path, files) == []


def test_a_file_of_no_program_may_be_for_people(tmp_path: Path) -> None:
    site: dict[str, Content] = {FILE: "NEED_STATD=\n", "/etc/default/site": "RACK=7\n"}
    assert found(tmp_path, site) == []
    assert len(found(tmp_path, {**site, "/etc/systemd/system/site.service": "[Service]\n"})) == 1


def test_what_a_package_ships_is_its_own(tmp_path: Path) -> None:
    assert found(tmp_path, {}, TEXT) == []
    assert len(found(tmp_path, {}, "NEED_STATD=\n")) == 1
