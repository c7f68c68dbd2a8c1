# SPDX-License-Identifier: Apache-2.0
"""Playbooks before they run: groups, what would reach the builder, and their folder."""

from __future__ import annotations

import os
import time
from pathlib import Path
from textwrap import dedent

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe import project as project_files
from imagebuilder.recipe.playbook import read_playbook
from imagebuilder.recipe.project import digests_of_project, find_problem_of, project_of
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
        ("hosts: all\n  roles: 5", "2:3: roles: needs a list of roles"),
        ("&b\n  hosts: all\n  connection: local\n- <<: *b\n  name: again",
         "3:3: connection: local would run on the builder"),
        ("hosts: all\n  tasks: [\n",
         "4:1: not valid YAML: expected the node content, but found '<stream end>'"),
    ],
)  # fmt: skip
def test_what_no_build_may_do(tmp_path: Path, play: str, fault: str) -> None:
    site = tmp_path / "site.yml"
    site.write_text(f"- {play}\n")
    assert read(site)[1] == [f"own/site.yml:{fault}"]


def laughs() -> str:
    """Blocks of blocks, a hundred million of them."""
    rows = ["- hosts: all\n  tasks:\n  - block: &a0 [{name: x}]\n"]
    for number in range(1, 9):
        inner = ", ".join([f"{{block: *a{number - 1}}}"] * 10)
        rows.append(f"  - block: &a{number} [{inner}]\n")
    return "".join(rows)


def nested(depth: int) -> str:
    opened, closed = "[{block: " * depth, "}]" * depth
    return f"- hosts: all\n  tasks: {opened}[]{closed}\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- hosts: all\n  vars: {d: 2001-99-99}\n",
         '2:13: "2001-99-99" looks like a date to Ansible, but there is no such day'),
        ("- hosts: all\n  vars: {d: !!int x}\n", '2:13: "x" is not what !!int announces'),
        ("- hosts: all\n  vars: {d: !!float x}\n", '2:13: "x" is not what !!float announces'),
        ("- hosts: all\n  vars: {d: !!bool x}\n", '2:13: "x" is not what !!bool announces'),
        ("- hosts: all\n  vars: {d: " + "9" * 5000 + "}\n",
         "2:13: a number of 5000 digits is too long for Ansible"),
        ("- <<: 5\n  hosts: all\n", "1:3: << needs a mapping, or a list of mappings"),
        ("- <<: [{a: b}, 5]\n  hosts: all\n", "1:3: << needs a mapping, or a list of mappings"),
        ("- hosts: {{ who }}\n", "1:11: a key must be plain text"),
        ("- {? [a] : b}\n", "1:6: a key must be plain text"),
        ("- hosts: all\n  tasks: &t\n  - block: *t\n", "3:12: no anchor named &t before this"),
        (nested(200), "2:452: nested deeper than 100 levels"),
        ("[" * 100_000, "1:102: nested deeper than 100 levels"),
        (laughs(), "8:25: more than 100000 values, aliases expanded"),
        (f"- &a {'x' * 500_000}\n" + "- *a\n" * 1000,
         "205:3: more than 100000 values, aliases expanded"),
        ("- &a [[[]]]\n- &b " + "[" * 60 + "*a" + "]" * 60 + "\n- " + "[" * 40 + "*b",
         "3:43: nested deeper than 100 levels"),
        ("\0" * (2 << 20), "is larger than 1024 KiB"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_what_ansible_cannot_read(tmp_path: Path, text: str, fault: str) -> None:
    site = tmp_path / "site.yml"
    site.write_text(text)
    started = time.process_time()
    said = read(site)[1]
    assert said == [f"own/site.yml:{' ' if fault.startswith('is') else ''}{fault}"]
    assert time.process_time() - started < 10


def test_what_ansible_can_read(tmp_path: Path) -> None:
    site = write(
        tmp_path,
        site="""\
            - hosts: all
              vars:
                plus: +_
                number: !!int "5"
                switch: !!bool on
                size: !!float 1e3
                day: 2001-02-03
                again: 2001-02-03 04:05:06
                quoted: "2001-99-99"
                bell: "\\a"
                5: 6
                twice: 1
                twice: 2
              roles:
                - {role: one, when: later}
            """,
    )
    assert read(site)[1] == []


def test_merge_keys_are_as_ansible_has_them(tmp_path: Path) -> None:
    site = write(
        tmp_path,
        site="""\
            - hosts: all
              vars:
                first: &first {delegate_to: nas01, when: later}
                second: &second {delegate_to: nas02}
                third: &third {<<: [*second, *first]}
              tasks:
                - {<<: *first, command: id}
                - {<<: [*second, *first], command: id}
                - {<<: *second, command: id}
                - {<<: *second, delegate_to: p}
                - {"<<": *second}
            """,
    )
    what = "delegate_to: nas02 is another machine, which a build cannot reach"
    assert read(site)[1] == [f"own/site.yml:4:22: {what}"]


def test_a_file_that_includes_itself_under_other_names(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    site = write(tmp_path, site="- hosts: all\n- import_playbook: x/../site.yml\n")
    assert read(site) == ((), [])


def test_files_that_include_each_other_without_end(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"{number}.yml").write_text(f"- import_tasks: {number + 1}.yml\n")
    site = write(tmp_path, site="- hosts: all\n  tasks: [{import_tasks: 0.yml}]\n")
    assert read(site)[1] == ["own/site.yml: includes too many files, each from within another"]


def test_a_long_pattern_of_hosts(tmp_path: Path) -> None:
    site = write(tmp_path, site=f"- hosts: 'a[0:5]{':' * 200_000}b,c[1:2]'\n")
    started = time.process_time()
    assert read(site) == (("a", "b", "c"), [])
    assert time.process_time() - started < 5


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
    assert set(before) == {"site.yml", "roles/a/tasks/main.yml", "roles/b"}
    (outside / "tasks/main.yml").write_text("- command: whoami\n")
    (project / "site.yml").chmod(0o755)
    after = digests_of_project(project)
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
    monkeypatch.setattr(project_files, "MOST_FILES", 0)
    with pytest.raises(InputError, match="has more than 0 files, and all would be read"):
        project.load()


def test_a_link_to_all_files_of_the_builder_is_not_read(project: Project, tmp_path: Path) -> None:
    link = tmp_path / "mine/roles/r/files/f"
    link.parent.mkdir(parents=True)
    link.symlink_to("/")
    what = f"{link} leads to /: the folder has more than "
    started = time.process_time()
    with pytest.raises(InputError, match=what):
        project.load()
    assert time.process_time() - started < 5


def test_a_project_of_many_bytes_is_not_read(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "disk"
    write(project, site="[]\n")
    with outside.open("wb") as stream:
        stream.truncate(project_files.MOST_BYTES + 1)
    (outside.parent / "more").mkdir()
    (outside.parent / "more/disk").symlink_to(outside)
    (project / "more").symlink_to(tmp_path / "more")  # what is in there is not followed
    assert find_problem_of(project) is None
    (project / "disk").symlink_to(outside)
    problem = find_problem_of(project)
    assert problem
    assert problem[0] == f"{project} has more than 4 GiB, and all would be read"


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    write(tmp_path, site="[]\n")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "missing").symlink_to("/does/not/exist")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-a-device").symlink_to("/dev/zero")
    assert find_problem_of(tmp_path) is None
    assert digests_of_project(tmp_path)["pipe"] == "special"
    assert digests_of_project(tmp_path)["to-a-device"] == "-> /dev/zero"


@pytest.mark.parametrize("name", [b"\xff", b"link", b"\xff/link"])
def test_names_that_are_no_text(project: Project, tmp_path: Path, name: bytes) -> None:
    link = Path(os.fsdecode(os.fsencode(tmp_path / "mine") + b"/" + name))
    link.parent.mkdir(exist_ok=True)
    link.symlink_to("\udcfe" if link.name == "link" and link.parent.name == "mine" else "x")
    with pytest.raises(InputError, match=r"is not UTF-8, or its target is not\n  hint: rename it"):
        project.load()
