# SPDX-License-Identifier: Apache-2.0
"""What a site mounts, and which paths a node therefore has; facts that are read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.mounts import find_mounts, read_tmpfiles
from imagebuilder.proof.reading.parameters import config_lines, read_sysctl
from imagebuilder.proof.reading.udev import read_rules
from imagebuilder.proof.services.start import appears_later
from tests.unit.proof.trees import Content, Sandbox, make_tree, subject

UNIT, DROP_IN = "/etc/systemd/system/models.mount", "/etc/systemd/system/models.mount.d/a.conf"


@pytest.mark.parametrize(
    ("files", "later"),
    [
        ({"/etc/fstab": "/dev/sdb1 /models ext4 nofail 0 2\n"}, True),
        ({"/etc/fstab": "/dev/sdb1 /models ext4\n"}, True),
        ({"/etc/fstab": "#/dev/sdb1 /models ext4 nofail 0 2\n"}, False),
        ({"/etc/fstab": "/dev/sdb1 /mod ext4 nofail 0 2\n"}, False),
        ({"/etc/fstab": "/dev/sda1 / ext4 defaults 0 1\n"}, False),
        ({UNIT: "[Mount]\nWhere = /models\n"}, True),
        ({UNIT: "[Mount]\nWhere=/srv\n", DROP_IN: "[Mount]\nWhere=/models\n"}, True),
        ({UNIT: "[Mount]\n#Where=/models\n"}, False),
    ],
)
def test_paths_that_a_node_mounts(files: dict[str, Content], later: bool, tmp_path: Path) -> None:  # noqa: FBT001
    asked = subject(make_tree(tmp_path, files))
    assert appears_later(asked, "/models/a.gguf") is later
    assert appears_later(asked, "/run/x")


def test_facts_are_read_once_for_all_questions(tmp_path: Path) -> None:
    sandbox = Sandbox({"systemd-analyze cat-config sysctl.d": "# /etc/sysctl.d/1.conf\na.b = 1\n"})
    asked = subject(
        make_tree(tmp_path, {"/etc/fstab": "/dev/sdb1 /m ext4 nofail 0 2\n"}), run=sandbox
    )
    assert read_sysctl(asked) is read_sysctl(asked)
    assert len(sandbox.asked) == 1
    assert find_mounts(asked) is find_mounts(asked)
    assert read_rules(asked) is read_rules(asked)
    assert read_tmpfiles(asked) is read_tmpfiles(asked)
    assert config_lines(asked) is config_lines(asked)
    assert asked.accounts is asked.accounts
    assert asked.drivers is asked.drivers
