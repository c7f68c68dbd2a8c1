# SPDX-License-Identifier: Apache-2.0
"""SELinux that is enforced needs a policy, and files with labels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.proof.kernel.options import prove_words
from tests.unit.proof.trees import KERNEL, Program, make_tree, subject

POLICY = "default/policy/policy.33"
NO_POLICY, NO_LABELS = "the image has no policy", "the files of the image have no labels"
SYSTEMD = "/usr/lib/systemd/systemd"


def told(path: Path, *words: str) -> list[str]:
    return [found.what for found in prove_words(subject(path, cmdline=words))]


def make_root(top: Path, files: tuple[str, ...], kernel: str = "") -> None:
    config = {f"/usr/lib/modules/{KERNEL}/config": f"{kernel}\n"} if kernel else {}
    named = {f"/etc/selinux/{name}": "SELINUX=enforcing\n" for name in files}
    make_tree(top, {**named, **config, SYSTEMD: Program("")})


@pytest.mark.parametrize(
    ("words", "files", "said"),
    [
        (("security=selinux", "selinux=1", "enforcing=1"), (), NO_POLICY),
        (("lsm=landlock,selinux", "enforcing=1"), (), NO_POLICY),
        (("selinux=1",), ("config",), NO_POLICY),
        (("selinux=1", "enforcing=1"), (POLICY,), NO_LABELS),
        (("selinux=1",), (POLICY, "config"), NO_LABELS),
        (("selinux=1", "enforcing=0"), ("config",), ""),
        (("selinux=0", "security=selinux", "enforcing=1"), (), ""),
        (("enforcing=1",), (), ""),
        (("selinux=1",), (), ""),
    ],
)
def test_selinux_that_is_enforced(
    tmp_path: Path, words: tuple[str, ...], files: tuple[str, ...], said: str
) -> None:
    make_root(tmp_path, files)
    found = told(tmp_path, *words)
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("option", "words", "is_told"),
    [
        ('CONFIG_LSM="lockdown,yama,integrity,selinux,bpf"', (), True),
        ("CONFIG_DEFAULT_SECURITY_SELINUX=y", (), True),
        ('CONFIG_LSM="landlock,lockdown,yama,apparmor,bpf"', (), False),
        # As Enterprise Linux 9 is built, and told otherwise.
        ('CONFIG_LSM="lockdown,yama,integrity,selinux,bpf"', ("selinux=0",), False),
        ('CONFIG_LSM="lockdown,yama,integrity,selinux,bpf"', ("enforcing=0",), False),
        ('CONFIG_LSM="lockdown,yama,integrity,selinux,bpf"', ("lsm=yama,bpf",), False),
    ],
)
def test_a_kernel_that_has_selinux_on(
    tmp_path: Path,
    option: str,
    words: tuple[str, ...],
    is_told: bool,  # noqa: FBT001
) -> None:
    make_root(tmp_path, (POLICY, "config"), option)
    assert bool(told(tmp_path, *words)) == is_told


@pytest.mark.root
def test_files_with_labels(tmp_path: Path) -> None:
    make_root(tmp_path, (POLICY, "config"))
    label = b"system_u:object_r:init_exec_t:s0\0"
    os.setxattr(f"{tmp_path}{SYSTEMD}", "security.selinux", label)
    assert told(tmp_path, "selinux=1") == []
