# SPDX-License-Identifier: Apache-2.0
"""The layout of Enterprise Linux 9 is no fault, and what is missing in it is one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.prove import prove
from tests.unit.proof.el9 import CERTIFICATES, MODULES, make_root, subject_of
from tests.unit.proof.trees import Content, Link, kernel_files


def complaints(path: Path, files: Mapping[str, Content] | None = None) -> list[str]:
    """All faults and warnings of all questions."""
    proof = prove(subject_of(make_root(path, files)))
    return [f.what for answer in proof.answers for f in answer.findings if f.level != Level.FACT]


@pytest.mark.root  # its files must belong to root
def test_a_sound_root_is_proved(tmp_path: Path) -> None:
    assert complaints(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({CERTIFICATES: ""}, f"{CERTIFICATES} is empty: no certificate of a server can be"),
        ({"/usr/lib64/libc.so.6": ""}, "libc.so.6"),
        ({"/usr/lib64/security/pam_unix.so": Link("nowhere")}, "needs pam_unix.so, which is not"),
        ({f"{MODULES}/vmlinuz": Link("nowhere")}, "the image has no vmlinuz of 5.14.0"),
        (kernel_files({"kernel/a.ko": {}}, release="5.14.0-1.el9.x86_64"), "but also has 5.14.0-1"),
        ({"/etc/resolv.conf": Link("../srv/resolv.conf")}, "no name can be resolved"),
        ({"/etc/cron.d/site": "1 1 * * * root /usr/bin/true\n"}, "the image has no cron"),
    ],
)
def test_what_is_missing_is_told(files: dict[str, Content], said: str, tmp_path: Path) -> None:
    assert [what for what in complaints(tmp_path, files) if said in what]
