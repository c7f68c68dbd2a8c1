# SPDX-License-Identifier: Apache-2.0
"""Folders that variables name."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.programs.extras import prove_places
from tests.unit.proof.trees import Content, make_tree, running, subject

UNIT = "/etc/systemd/system/a.service"
STRICT = {"ProtectSystem": "strict"}
FILES: dict[str, Content] = {
    "/etc/fstab": "LABEL=m /models ext4 nofail 0 2\n",
    "/etc/passwd": "compute:x:1000:1000::/home/compute:/bin/bash\n",
    "/etc/group": "compute:x:1000:\n",
    "/usr/lib/tmpfiles.d/a.conf": "d /var/spool/made 0755 compute compute -\n",
    "/opt/there/": "",
    "/usr/lib/x": "",
}


def told(
    root: Path, variable: str, values: dict[str, str], files: dict[str, Content] | None = None
) -> list[str]:
    given = subject(make_tree(root, {**FILES, UNIT: "[Service]\n", **(files or {})}))
    given.__dict__["shipped"] = {}
    settings = {key: (value,) for key, value in values.items()}
    environment = {"Environment": (variable,)} if variable else {}
    loaded = {"Unit Load State": ("loaded",), **environment, **settings}
    unit = LoadedUnit("a.service", (UNIT,), loaded, {"ExecStart": (("/usr/bin/a",),)})
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())
    found = list(prove_places(running(given, startup)))
    assert all(each.level is Level.WARNING for each in found)
    return [each.what for each in found]


@pytest.mark.parametrize(
    ("variable", "values", "said"),
    [
        ("XILINX_XRT=/opt/gone", {}, "names a folder that is not in the image"),
        ("XILINX_XRT=/opt/there", {}, ""),
        ("CUDA_HOME=/models/cuda", {}, ""),
        ("TMPDIR=/opt/gone", {}, "temporary files cannot be made there"),
        ("TMPDIR=/var/spool/made", {}, ""),
        ("TMPDIR=/run/a", {}, ""),
        ("TMPDIR=/var/cache/a/tmp", {"CacheDirectory": "a"}, ""),
        ("TMPDIR=$HOME/tmp", {}, ""),
        ("OTHER=/opt/gone", {}, ""),
        ("TRITON_CACHE_DIR=/opt/t", STRICT, "cannot write to /opt/t (TRITON_CACHE_DIR): Protect"),
        ("TRITON_CACHE_DIR=/opt/t", {**STRICT, "ReadWritePaths": "/opt"}, ""),
        ("TRITON_CACHE_DIR=/opt/t", {**STRICT, "BindPaths": "/models/t:/opt/t"}, ""),
        ("TRITON_CACHE_DIR=/var/cache/a/t", {**STRICT, "CacheDirectory": "a"}, ""),
        ("TRITON_CACHE_DIR=/models/t", STRICT, ""),
        ("TRITON_CACHE_DIR=/usr/lib/t", {"ProtectSystem": "full"}, "ProtectSystem=full"),
        ("XDG_CACHE_HOME=/home/compute/.cache", {"ProtectHome": "yes"}, "ProtectHome=yes"),
        ("XDG_CACHE_HOME=/opt/t", {"ReadOnlyPaths": "-/opt"}, "ReadOnlyPaths="),
        ("XDG_CACHE_HOME=/opt/there/t", {"User": "compute"}, "/opt/there does not belong to comp"),
        ("XDG_CACHE_HOME=/opt/there/t", {"User": "root"}, ""),
        ("XDG_CACHE_HOME=/opt/there/t", {}, ""),
        ("XDG_CACHE_HOME=/opt/there/t", {"DynamicUser": "yes"}, "its dynamic account"),
        ("XDG_CACHE_HOME=/var/spool/made/t", {"User": "compute"}, ""),
        ("AMD_COMGR_CACHE=1", {**STRICT, "User": "compute"}, ""),
    ],
)
def test_folders_of_a_service(
    variable: str, values: dict[str, str], said: str, tmp_path: Path
) -> None:
    found = told(tmp_path, variable, values)
    assert [said in each for each in found] == ([True] if said else []), found


def test_a_folder_that_belongs_to_the_account(tmp_path: Path) -> None:
    (tmp_path / "opt/mine").mkdir(parents=True)
    info = (tmp_path / "opt/mine").stat()
    tables: dict[str, Content] = {
        "/etc/passwd": f"me:x:{info.st_uid}:{info.st_gid}::/home/me:/bin/sh\n",
        "/etc/group": f"me:x:{info.st_gid}:\n",
    }
    assert told(tmp_path, "XDG_CACHE_HOME=/opt/mine/c", {"User": "me"}, tables) == []


@pytest.mark.parametrize("key", ["Group", "SupplementaryGroups"])
@pytest.mark.parametrize(("mode", "count"), [(0o2775, 0), (0o2755, 1), (0o0575, 0)])
def test_a_folder_of_a_group_of_the_unit(key: str, mode: int, count: int, tmp_path: Path) -> None:
    folder = tmp_path / "opt/ours"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    tables: dict[str, Content] = {
        "/etc/passwd": "me:x:60001:60001::/home/me:/bin/sh\n",
        "/etc/group": f"me:x:60001:\nours:x:{folder.stat().st_gid}:\n",
    }
    values = {"User": "me", key: "ours"}
    assert len(told(tmp_path, "XDG_CACHE_HOME=/opt/ours/c", values, tables)) == count


def test_folders_of_everybody_who_logs_in(tmp_path: Path) -> None:
    said = told(tmp_path, "", {}, {"/etc/environment": "TMPDIR=/scratch/tmp\n"})
    assert said == [
        "TMPDIR=/scratch/tmp of everybody who logs in names a folder that is not in the image: "
        "temporary files cannot be made there"
    ]
