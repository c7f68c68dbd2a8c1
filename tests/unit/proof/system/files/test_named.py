# SPDX-License-Identifier: Apache-2.0
"""Libraries that settings name, and licences of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.system.files.unread import prove_named_files
from tests.unit.proof.trees import Content, make_tree, subject

PLUGIN = "/usr/lib/slurm/pyxis.so"


def told(root: Path, files: dict[str, Content]) -> list[str]:
    given = subject(make_tree(root, files))
    given.__dict__["shipped"] = {}
    found = list(prove_named_files(given))
    assert all(each.level is Level.WARNING for each in found)
    return [each.what for each in found]


@pytest.mark.parametrize(
    ("path", "line", "is_said"),
    [
        ("/etc/slurm/plugstack.conf", f"required {PLUGIN} a=b", True),
        ("/etc/openmpi.conf", f'plugin = "{PLUGIN}"', True),
        ("/etc/slurm/plugstack.conf", f"optional {PLUGIN}", False),
        ("/etc/slurm/plugstack.conf", f"# required {PLUGIN}", False),
        ("/etc/slurm/plugstack.conf", "required /usr/lib/slurm/there.so", False),
        ("/etc/slurm/plugstack.conf", "required /usr/lib/slurm/*.so", False),
        ("/etc/slurm/plugstack.conf", "required /models/slurm/pyxis.so", False),
        ("/etc/slurm/plugstack.conf.bak", f"required {PLUGIN}", False),
        ("/etc/pam.d/su", f"auth required {PLUGIN}", False),
        ("/srv/notes.conf", f"required {PLUGIN}", False),
        ("/etc/a.conf", "url = https://example.org/lib/a.so", False),
    ],
)
def test_a_library_that_is_not_there(
    path: str,
    line: str,
    is_said: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    there: dict[str, Content] = {
        "/usr/lib/slurm/there.so": "",
        "/etc/fstab": "LABEL=m /models ext4",
    }
    said = f"{path} names {PLUGIN}, which is not in the image"
    assert told(tmp_path, {**there, path: f"{line}\n"}) == ([said] if is_said else [])


@pytest.mark.parametrize(
    ("line", "is_said"),
    [
        ("INCREMENT solver v 1 uncounted HOSTID=525400a1b2c3", True),
        ('INCREMENT solver v 1 uncounted hostid="525400A1B2C3"', True),
        ("INCREMENT solver v 1 uncounted HOSTID=ANY", False),
        ("SERVER licences 525400a1b2c3 27000", False),
        ("SERVER licences ANY 27000", False),
    ],
)
def test_a_licence_of_one_machine(line: str, is_said: bool, tmp_path: Path) -> None:  # noqa: FBT001
    found = told(tmp_path, {"/opt/solver/solver.lic": f"{line}\n"})
    assert [each.partition(",")[0] for each in found] == (
        ["/opt/solver/solver.lic is a licence for one machine"] if is_said else []
    )
