# SPDX-License-Identifier: Apache-2.0
"""Ansible's side of a playbook, and what is said when one fails."""

from __future__ import annotations

import configparser
import json
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.lock.verified import Pool
from imagebuilder.playbook import step as ansible
from imagebuilder.playbook.controller import (
    Controller,
    inventory_of,
    link_vars,
    make_inside,
    render_settings,
)
from imagebuilder.playbook.step import AnsibleStep, check_unchanged, hints, reported_error
from imagebuilder.recipe.project import digests_of_project
from imagebuilder.recipe.types import Playbook
from imagebuilder.steps.step import StepWorkspace


def make_step(project: Path, **vars_: str) -> AnsibleStep:
    """A step for a playbook of one file."""
    play = Playbook("site.yml", project, {"site.yml": "0 d1"}, vars_)
    return AnsibleStep("own", "p", "linux-image-amd64", play, epoch=0)


def make_workspace(work: Path) -> StepWorkspace:
    """A workspace that nothing runs in."""
    return StepWorkspace(work, (), "u", 0, work / "log", Pool(work, work), family=APT)


def test_a_project_that_changed_while_its_playbook_ran_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text("- hosts: all\n")
    playbook = Playbook("site.yml", tmp_path, digests_of_project(tmp_path), {})
    check_unchanged(playbook)
    (tmp_path / "tasks.yml").write_text("[]\n")
    with pytest.raises(WorkError, match="has changed since this build read it"):
        check_unchanged(playbook)


def test_the_projects_settings_count_as_far_as_they_are_harmless(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\nroles_path = ours:/shared\nhash_behaviour = merge\nremote_user = root\n"
        "callback_plugins = evil\nlog_path = /var/log/evil\n[ssh_connection]\nssh_args = -F evil\n"
    )
    text = render_settings(tmp_path / "controller", tmp_path, "imagebuilder_tell")
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    told = parser["defaults"]
    assert told["roles_path"] == f"{tmp_path}/ours:/shared"
    assert told["hash_behaviour"] == "merge"
    assert "evil" not in text
    assert "remote_user" not in told


def test_a_broken_ansible_cfg_is_ansibles_business(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("roles_path without a section\n")
    text = render_settings(tmp_path / "controller", tmp_path, "imagebuilder_tell")
    assert f"roles_path = {tmp_path}/roles\n" in text


def test_inventory_has_one_host() -> None:
    found = json.loads(json.dumps(inventory_of("p", ("a", "b"))))
    assert list(found["all"]["hosts"]) == ["p"]
    assert {name: list(g["hosts"]) for name, g in found["all"]["children"].items()} == {
        "a": ["p"],
        "b": ["p"],
    }


def test_vars_beside_the_inventory_are_found(tmp_path: Path) -> None:
    (tmp_path / "inventory/group_vars").mkdir(parents=True)
    (tmp_path / "host_vars").mkdir()
    controller = tmp_path / "controller"
    controller.mkdir()
    link_vars(controller, tmp_path)
    assert (controller / "group_vars").resolve() == tmp_path / "inventory/group_vars"
    assert (controller / "host_vars").resolve() == tmp_path / "host_vars"


def test_what_lands_in_the_root_is_a_program(tmp_path: Path) -> None:
    setup = replace(APT.ansible, files={"x.conf": "x"}, covers={"/etc/x.conf": "x.conf"})
    make_inside(tmp_path, "p", "7.2", setup)
    lines = (tmp_path / "shim").read_text().splitlines()
    assert lines[0] == "#!/usr/bin/python3 -IS"
    assert (tmp_path / "shim").stat().st_mode & 0o777 == 0o755
    for name in ("shim", "prepare.py"):
        compile((tmp_path / name).read_text(), name, "exec")
    assert (tmp_path / "x.conf").read_text() == "x"
    assert json.loads((tmp_path / "settings.json").read_text())["covers"] == {
        "/etc/x.conf": "x.conf"
    }


def test_a_failed_task_is_told_with_its_place(tmp_path: Path) -> None:
    controller = Controller(tmp_path, (), {})
    rows = [
        {"event": "failed", "play": "A", "task": "rescued", "where": "/x:1", "what": "no"},
        {"event": "failed", "play": "Nodes", "task": "Make it", "where": "/x/site.yml:7",
         "what": "'ansible_memtotal_mb' is undefined", "module": "debug"},
    ]  # fmt: skip
    controller.told.write_text("".join(json.dumps(row) + "\n" for row in rows))
    error = reported_error(make_workspace(tmp_path), make_step(tmp_path), controller, [])
    assert error is not None
    fault = error.faults[0]
    assert fault.where == "/x/site.yml:7"
    assert fault.what.startswith('site.yml failed: play "Nodes", task "Make it"\n')
    assert "at boot" in fault.hint
    assert f"whole log: {tmp_path}/log" in fault.hint


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        (["[ERROR]: no role 'x'", "Origin: /p/site.yml:2:11", ""], "/p/site.yml:2:11"),
        (["ERROR! no action", "", "The error appears to be in '/p/site.yml': line 3, column 7"],
         "/p/site.yml:3"),
        (["ERROR! something else"], ""),
    ],
)  # fmt: skip
def test_what_ansible_refuses_has_its_place(tmp_path: Path, lines: list[str], where: str) -> None:
    controller = Controller(tmp_path, (), {})
    error = reported_error(make_workspace(tmp_path), make_step(tmp_path), controller, lines)
    assert error is not None
    assert error.faults[0].where == where
    assert "site.yml cannot run: " in error.faults[0].what


def test_hints_are_for_what_happened() -> None:
    def told(what: str, *, network: bool = False) -> str:
        return " ".join(hints(what, network=network))

    assert "--add-packages" in told("No package matching 'nginx' is available")
    assert "ansible_network" in told("[Errno 101] Network is unreachable")
    assert told("[Errno 101] Network is unreachable", network=True) == ""
    assert "imagebuilder_profile" in told("a build reaches no other machine")
    assert "vaults" in told("Attempting to decrypt but no vault secrets found")
    assert told("'my_var' is undefined") == ""
    assert told("non-zero return code") == ""


def test_inputs_name_every_file_and_tell_no_secret(tmp_path: Path) -> None:
    inputs = make_step(tmp_path, token="s3cret").inputs()
    assert inputs["project"] == {"site.yml": "0 d1"}
    assert "s3cret" not in json.dumps(inputs)
    assert inputs != make_step(tmp_path, token="other").inputs()


def test_without_ansible_the_host_is_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ansible, "PROGRAM", "ansible-playbook-nowhere")
    with pytest.raises(HostError, match="not installed") as caught:
        ansible.find_ansible()
    assert "pip install 'imagebuilder[ansible]'" in caught.value.faults[0].hint
    old = tmp_path / "ansible-playbook-old"
    old.write_text("#!/bin/sh\necho 'ansible-playbook [core 2.9.27]'\n")
    old.chmod(0o755)
    monkeypatch.setattr(ansible, "PROGRAM", old.name)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(HostError, match=r"2\.9\.27, but at least 2\.14"):
        ansible.check_ansible()
