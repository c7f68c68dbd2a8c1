# SPDX-License-Identifier: Apache-2.0
"""Twelve roles as people have them, from a lock that knows none of their packages to an image."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from imagebuilder.store.repository import Store
from tests.integration.changes import linked
from tests.integration.test_ansible import Builder
from tests.workshop import CHECKOUT, Workshop

pytestmark = [pytest.mark.root, pytest.mark.slow]

ROLES = CHECKOUT / "tests/fixtures/playbooks"
# On layers that `generic` has.
RECIPE = """\
description: Twelve roles in one playbook
base: debian-forky
overlays: [netboot, ssh, compute-node, roles]
"""
# A file and what is in it; "" for one that is not there.
FACTS = {
    "etc/containers/registries.conf.d/60-site.conf": "registry.example",
    "etc/systemd/system/sockets.target.wants/podman.socket": "Listen",
    "etc/systemd/system/remote-fs.target.wants/mnt-home.mount": "nas.example:/export/home",
    "etc/systemd/timesyncd.conf.d/60-site.conf": "NTP=ntp1.example ntp2.example",
    "etc/default/prometheus-node-exporter": "127.0.0.1:9100",
    "etc/nftables.conf": "policy drop",
    "etc/systemd/system/sysinit.target.wants/nftables.service": "nft",
    "etc/passwd": "grace:x:4102:4100",
    "home/ada/.ssh/authorized_keys": "ssh-ed25519",
    "etc/sudoers.d/60-staff": "NOPASSWD",
    "etc/sysctl.d/60-site.conf": "vm.swappiness = 10",
    "etc/security/limits.d/60-site.conf": "* hard memlock unlimited",
    "etc/tuned/active_profile": "throughput-performance",
    "etc/fail2ban/jail.d/60-sshd.conf": "enabled = true",
    "etc/apt/apt.conf.d/20auto-upgrades": "Unattended-Upgrade",
    "etc/ssh/sshd_config.d/60-site.conf": "MaxAuthTries 3",
    "etc/slurm/slurm.conf": "SlurmctldHost=head.example",
    "etc/systemd/system/multi-user.target.wants/slurmd.service": "slurmd",
    # Nothing of the machine that was feigned, and no secret.
    "etc/munge/munge.key": "",
    "etc/ssh/ssh_host_ed25519_key": "",
    "etc/ssh/ssh_host_ed25519_key.pub": "",
    "run/sshd": "",
    "etc/hostname": "",
}


def changed_tasks(log: str) -> list[str]:
    """The names of the tasks that changed something."""
    parts = re.split(r"(?:TASK|RUNNING HANDLER) \[", log)
    return [part.partition("]")[0] for part in parts[1:] if re.search(r"^changed:", part, re.M)]


def test_roles_lock_build_and_change_nothing_twice(workshop: Workshop, tmp_path: Path) -> None:
    mine = linked(workshop, tmp_path / "mine")  # the others see one image
    overlay = mine.project / "overlays/roles"
    shutil.copytree(ROLES, overlay)
    (mine.project / "recipes/roles.yaml").write_text(RECIPE)

    said = mine("lock", "roles", "--add-packages").stderr
    text = (overlay / "overlay.yaml").read_text()
    assert "added to overlays/roles/overlay.yaml: podman, crun, python3-apt, " in said
    assert text.startswith((ROLES / "overlay.yaml").read_text().partition("ansible:")[0])
    assert {"  - munge", "  - slurmd", "  - nftables"} <= set(text.splitlines())

    said = mine("build", "roles").stderr
    assert "11 service starts skipped: podman.socket (start), mnt-home.mount (start)" in said
    assert "not part of the image, because each node has its own: /etc/munge/munge.key\n" in said
    root = tmp_path / "root"
    manifest = json.loads(mine("show", "roles", "--json").stdout)
    Store(mine.state / "store").checkout(str(manifest["root"]["commit"]), root)
    assert {name: fact_of(root, name, word) for name, word in FACTS.items()} == FACTS
    assert (root / "etc/localtime").readlink() == Path("/usr/share/zoneinfo/Europe/Berlin")
    assert (root / "etc/machine-id").read_text() == ""
    assert (root / "etc/sudoers.d/60-staff").stat().st_mode & 0o777 == 0o440

    builder = Builder(tmp_path, root, {})
    workspace = builder.workspace("twice")
    builder.step(ROLES).apply(workspace)
    # The key is none of the image's, so it is written whenever the playbook runs.
    assert changed_tasks(workspace.log.read_text()) == [
        "slurm : Write the munge key", "slurm : Restart munge",
    ]  # fmt: skip
    assert not list((workspace.tree / "etc").rglob("munge.key"))


def fact_of(root: Path, name: str, word: str) -> str:
    """`word` if the file, links followed in the root, has it; "" for no file; else its text."""
    path = root / name
    for _ in range(5):
        if not path.is_symlink():
            break
        target = path.readlink()
        path = root / str(target).lstrip("/") if target.is_absolute() else path.parent / target
    if not path.exists():
        return ""
    text = path.read_text()
    return word if word and word in text else text
