# SPDX-License-Identifier: Apache-2.0
"""Playbooks before they run: groups, what would reach the builder, and their folder."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe import stages
from imagebuilder.recipe.playbook import read_playbook
from imagebuilder.recipe.stages import digests_of_project, project_of
from tests.unit.recipe.conftest import Project, make_project

OVERLAY = """\
description: A playbook
vars:
  playbook: {type: string, description: its place}
ansible:
  - playbook: "{{ playbook }}"
    groups: "%s"
"""


def write(folder: Path, **files: str) -> Path:
    """Files whose names have `_` for `/` and no ending; the path of site.yml."""
    for name, text in files.items():
        path = folder / f"{name.replace('_', '/')}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder / "site.yml"


def read(site: Path, *named: str) -> tuple[tuple[str, ...], list[str]]:
    """Groups, and each fault in one line."""
    groups, faults = read_playbook(site, site.parent, "own", "p", named)
    return groups, [f"{f.where}: {f.what}" for f in faults]


def test_every_group_that_a_play_names(tmp_path: Path) -> None:
    site = write(
        tmp_path,
        site="""\
            - hosts: gpu_nodes:&amd:!old
            - hosts: [web*, 'db[0]', p]
            - hosts: "{{ who }}"
            - import_playbook: more.yml
            - hosts: all
            """,
        more="- hosts: storage\n",
    )
    assert read(site) == (("amd", "db", "gpu_nodes", "storage", "webx"), [])


@pytest.mark.parametrize(
    ("play", "fault"),
    [
        ("hosts: localhost", "1:3: this play is for localhost: it would change the builder"),
        ("hosts: all\n  connection: local", "2:3: connection: local would run on the builder"),
        ("hosts: all\n  tasks:\n    - local_action: command id",
         "3:7: local_action would run on the builder"),
        ("hosts: all\n  tasks:\n    - block:\n        - debug:\n          delegate_to: 127.0.0.1",
         "5:11: delegate_to would run on the builder"),
        ("hosts: all\n  handlers:\n    - command: id\n      delegate_to: nas01",
         "4:7: delegate_to: nas01 is another machine, which a build cannot reach"),
        ("hosts: all\n  tasks: [\n",
         "4:1: not YAML: expected the node content, but found '<stream end>'"),
    ],
)  # fmt: skip
def test_what_no_build_may_do(tmp_path: Path, play: str, fault: str) -> None:
    site = tmp_path / "site.yml"
    site.write_text(f"- {play}\n")
    assert read(site)[1] == [f"own/site.yml:{fault}"]


def test_what_is_not_certain_is_left_to_the_run(tmp_path: Path) -> None:
    site = write(
        tmp_path,
        site="""\
            - hosts: all
              tasks:
                - command: id
                  delegate_to: localhost
                  when: imagebuilder_profile is not defined
                - command: id
                  delegate_to: "{{ inventory_hostname }}"
                - block: [{local_action: command id}]
                  when: false
                - import_tasks: other.yml
                  when: later
            """,
        other="- local_action: command id\n",
    )
    assert read(site)[1] == []


def test_roles_and_files_are_followed(tmp_path: Path) -> None:
    site = write(
        tmp_path,
        site="""\
            - hosts: all
              roles: [one, {role: two}]
              tasks:
                - ansible.builtin.import_tasks: more.yml
            """,
        more="- {include_role: {name: three}}\n",
        roles_one_tasks_main="- local_action: command id\n",
        roles_two_handlers_main="- {command: id, delegate_to: localhost}\n",
        roles_three_tasks_main="- include_tasks: deep.yml\n- include_tasks: main.yml\n",
        roles_three_tasks_deep="- {command: id, connection: local}\n",
    )
    assert [fault.split(": ")[0] for fault in read(site)[1]] == [
        "own/roles/three/tasks/deep.yml:1:17",
        "own/roles/one/tasks/main.yml:1:3",
        "own/roles/two/handlers/main.yml:1:17",
    ]


def test_with_named_groups_other_plays_are_not_ours(tmp_path: Path) -> None:
    site = write(
        tmp_path,
        site="""\
            - hosts: localhost
              tasks: [{local_action: command id}]
            - hosts: gpu:!old
              tasks: [{command: id}]
            - hosts: all:!gpu
              tasks: [{local_action: command id}]
            """,
    )
    assert read(site, "gpu") == (("gpu",), [])
    assert len(read(site, "storage")[1]) == 1


def test_vaults_and_unknown_tags_can_be_read(tmp_path: Path) -> None:
    site = write(tmp_path, site="- hosts: all\n  vars: {a: !vault 'x', b: !unsafe '{{'}\n")
    assert read(site)[1] == []


def test_a_project_is_the_folder_or_that_above_playbooks(tmp_path: Path) -> None:
    assert project_of(tmp_path / "x/site.yml") == tmp_path / "x"
    assert project_of(tmp_path / "x/playbooks/site.yml") == tmp_path / "x"


def test_every_file_counts(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    write(outside, tasks_main="- command: id\n")
    write(project, site="- hosts: all\n", roles_a_tasks_main="[]\n")
    (project / ".git").mkdir()
    (project / ".git/index").write_text("changes at every look")
    (project / "roles/b").symlink_to(outside)
    (outside / "back").symlink_to(project)
    before = digests_of_project(project)
    assert before is not None
    assert set(before) == {"site.yml", "roles/a/tasks/main.yml", "roles/b"}
    (outside / "tasks/main.yml").write_text("- command: whoami\n")
    (project / "site.yml").chmod(0o755)
    after = digests_of_project(project)
    assert after is not None
    assert {name for name in before if before[name] != after[name]} == {"roles/b", "site.yml"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose profile has a playbook of its own."""
    made = Project(make_project(tmp_path / "project", None))
    site = write(tmp_path / "mine", site="- hosts: gpu\n- hosts: localhost\n")
    made.write(
        {
            "recipes/p.yaml": "description: d\nbase: debian-trixie\noverlays: [own]\n"
            f"vars: {{playbook: {site}}}\n",
            "overlays/own/overlay.yaml": OVERLAY % "",
        }
    )
    return made


def test_a_recipe_with_a_playbook(project: Project, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine/site\.yml:2:3: this play is for localhost"):
        project.load()
    project.write({"overlays/own/overlay.yaml": OVERLAY % "gpu, amd"})
    (playbook,) = project.load().overlays[0].playbooks
    assert (playbook.name, playbook.project) == ("site.yml", tmp_path / "mine")
    assert (playbook.groups, playbook.limited) == (("amd", "gpu"), True)
    assert list(playbook.files) == ["site.yml"]


def test_a_playbook_in_a_home_is_not_read_whole(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "MOST_FILES", 0)
    with pytest.raises(InputError, match="has more than 0 files, and all would be read"):
        project.load()
