# SPDX-License-Identifier: Apache-2.0
"""Ansible on nodes: what its ssh may do there, whatever the person's own settings say."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.fleet.ansible import configure_nodes, host_vars
from imagebuilder.nodes.types import Node
from imagebuilder.process import run
from imagebuilder.tree import Tree

NODE = Node("n1", ("52:54:00:00:00:01",), "gpu", address="10.0.0.1")
PLAYBOOK = "- hosts: all\n  gather_facts: false\n  tasks:\n    - raw: 'true'\n"
OWN = "Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  LocalForward 8080 localhost:80\n"
OWN += "  SetEnv LD_PRELOAD=/tmp/x.so\n  PermitLocalCommand yes\n  StdinNull yes\n"


def check_options(said: str, tree: Path) -> None:
    """What `ssh -G` printed, once or more."""
    lines = said.splitlines()
    assert "forwardagent no" in lines
    assert "forwardagent yes" not in lines
    assert "forwardx11 yes" not in lines
    assert not [line for line in lines if line.startswith("localforward")]
    assert "stricthostkeychecking true" in lines
    assert f"userknownhostsfile {tree / 'serve/known_hosts'}" in lines
    assert "hostkeyalias n1" in lines
    assert {line for line in lines if line.startswith("setenv")} == {"setenv IMAGEBUILDER=1"}
    assert {"permitlocalcommand no", "stdinnull no"} <= {*lines}


def test_ansible_on_its_own_forwards_nothing(tmp_path: Path) -> None:
    (tmp_path / "own").write_text(OWN)
    common = host_vars(Tree(tmp_path), NODE, "")["ansible_ssh_common_args"]
    # sftp and scp take these options, too: they must have the long form.
    words = shlex.split(str(common))
    assert set(words[::2]) == {"-o"}
    check_options(run(["ssh", "-F", tmp_path / "own", *words, "-G", "n1"]).stdout, tmp_path)


def test_configure_never_forwards_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text(OWN)
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    # The real one says what it would do with these options and with the person's own file.
    ssh.write_text(f'#!/bin/sh\n/usr/bin/ssh -F {tmp_path}/own -G "$@" >> {tmp_path}/said\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    (tmp_path / "ansible.cfg").write_text("[ssh_connection]\nssh_args = -A\n")
    (tmp_path / "site.yml").write_text(PLAYBOOK)
    env: Mapping[str, str] = {
        "ANSIBLE_CONFIG": f"{tmp_path}/ansible.cfg",
        "ANSIBLE_HOME": f"{tmp_path}/home",
        "ANSIBLE_SSH_EXTRA_ARGS": "-v",
    }
    lines: list[str] = []
    status = configure_nodes(Tree(tmp_path), [NODE], [tmp_path / "site.yml"], env, lines.append)
    assert status == 0, lines
    said = (tmp_path / "said").read_text()
    check_options(said, tmp_path)
    assert "loglevel VERBOSE" in said or "loglevel DEBUG" in said, "their -v is kept"


def test_no_connection_of_another_inventory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ansible names its socket by user and address: another inventory may check no host key."""
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\n/usr/bin/ssh -F none -G "$@" >> {tmp_path}/said\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    (tmp_path / "site.yml").write_text(PLAYBOOK)
    env: Mapping[str, str] = {"ANSIBLE_HOME": f"{tmp_path}/home"}
    nodes = [NODE, replace(NODE, name="n2")]
    lines: list[str] = []
    assert configure_nodes(Tree(tmp_path), nodes, [tmp_path / "site.yml"], env, lines.append) == 0
    said = (tmp_path / "said").read_text().splitlines()
    found = {line for line in said if line.startswith("controlpath ")}
    assert len(found) == 2, lines
    # Where Ansible would keep it by itself.
    address = [*dict.fromkeys(line for line in said if line.startswith("hostname "))]
    assert address == [f"hostname {NODE.address}"]
    usual = hashlib.sha1(f"{NODE.address}-None-{NODE.login}".encode()).hexdigest()[:10]
    assert not [line for line in found if line.endswith(usual)]
    assert all(len(line.rpartition("/")[2]) == 10 for line in found)
