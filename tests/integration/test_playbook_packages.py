# SPDX-License-Identifier: Apache-2.0
"""What `lock` finds out about playbooks without a root, and what it looks at them from."""

from __future__ import annotations

import os
from pathlib import Path

from imagebuilder.lock.types import Lock
from imagebuilder.playbook.package_requests import PackageRequests, ask_playbook
from imagebuilder.process import run
from imagebuilder.recipe.project import digests_of_project
from imagebuilder.recipe.types import Base, Boot, Overlay, Playbook, Recipe
from tests.workshop import CHECKOUT

LOCK = Lock("demo", "amd64", "debian-trixie", 1_700_000_000, (), ())
BASE = Base("b", "debian", "trixie", "amd64", "mmdebstrap", "apt", (), "linux-image-amd64", ())
# Each kind of task that asks for packages, by what decides about it.
SITE = """
- hosts: all
  vars: {tools: [tool-a, tool-b], version: 3}
  tasks:
    - apt: {name: "{{ tools }}"}
    - package: {name: "{{ item.name }}-{{ version }}"}
      loop: [{name: loop-a}, {name: loop-b}]
    - apt: {name: only-13}
      when: ansible_distribution_major_version == '13'
    - apt: {name: never}
      when: ansible_os_family == 'RedHat' or imagebuilder_profile is not defined
    - include_tasks: more.yml
    - command: which tool
      register: found
    - apt: {name: conditional}
      when: found.rc == 0
    - apt: {name: defaulted}
      when: (found.stdout | default('')) == 'x'
    - apt: {name: "{{ found.stdout_lines }}"}
    - apt: {deb: https://packages.example/own.deb}
    - template: {src: nowhere.j2, dest: /etc/x}
      notify: Late
    - fail: {msg: not on this machine}
      when: ansible_memtotal_mb < 4096
    - shell: touch /var/tmp/imagebuilder-survey; apt-get install -y by-command
    - delegate_to: elsewhere
      command: touch /var/tmp/imagebuilder-survey
    - deb822_repository: {name: own, uris: https://packages.example, suites: x}
  handlers:
    - {name: Late, apt: {name: by-handler}}
"""


def requests_of(project: Path, top: Path) -> PackageRequests:
    """What site.yml of a folder asks for."""
    files = digests_of_project(project)
    overlay = Overlay("own", project, playbooks=(Playbook("site.yml", project, files, {}),))
    recipe = Recipe("demo", "d", BASE, (overlay,), {}, (), Boot("nfs", (), ()))
    top.mkdir()
    return ask_playbook(recipe, LOCK, overlay, overlay.playbooks[0], top)


def test_every_way_to_ask_for_a_package(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "site.yml").write_text(SITE)
    (project / "more.yml").write_text("- {name: M, ansible.builtin.package: {name: included}}\n")
    found = requests_of(project, tmp_path / "top")
    assert [each.package for each in found.packages] == [
        "tool-a", "tool-b", "python3-apt", "loop-a-3", "loop-b-3", "only-13", "included",
        "by-command", "python3-debian", "by-handler",
    ]  # fmt: skip
    assert found.packages[6].where == f"{project}/more.yml:1"
    unknown = {where.rpartition(":")[2]: why for where, why in found.unknown}
    lines = SITE.splitlines()
    told = {lines[int(number) - 1].strip(): why for number, why in unknown.items()}
    assert list(told) == [
        "- apt: {name: conditional}", "- apt: {name: defaulted}",
        '- apt: {name: "{{ found.stdout_lines }}"}',
        "- apt: {deb: https://packages.example/own.deb}",
    ]  # fmt: skip
    assert "depends on what the build finds: found" in told["- apt: {name: defaulted}"]
    assert "which a lock cannot contain" in told["- apt: {deb: https://packages.example/own.deb}"]
    assert not Path("/var/tmp/imagebuilder-survey").exists()


def test_the_roles_that_people_have(tmp_path: Path) -> None:
    found = requests_of(CHECKOUT / "tests/fixtures/playbooks", tmp_path / "top")
    assert found.unknown == ()
    assert {each.package for each in found.packages} == {
        "podman", "crun", "python3-apt", "nfs-common", "nfs4-acl-tools", "nftables", "sudo",
        "prometheus-node-exporter", "tuned", "fail2ban", "unattended-upgrades", "munge", "slurmd",
    }  # fmt: skip


def test_an_ordinary_user_looks_from_a_view_without_network(tmp_path: Path) -> None:
    """With the system's Python: that of the tests may lie in a home that is closed to others."""
    work, project = tmp_path / "work", tmp_path / "project"
    for folder in (work, project):
        folder.mkdir()
        os.chown(folder, 65534, 65534)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o011)
    secret = Path("/etc/hostname")
    program = (
        "import os, sys; sys.path.append(sys.argv[1]); from pathlib import Path; "
        "from imagebuilder.process import run; from imagebuilder.sandbox.sandbox import *; "
        "from imagebuilder.sandbox.view import View; work, project = map(Path, sys.argv[2:4]); "
        "s = Sandbox(work, ('empty',), 'u', 0, enter=False, binds=(Bind(project, project),)); "
        "done = run(['sh', '-c', sys.argv[4]], sandbox=View(s), check=False); "
        "print(done.stdout, done.stderr)"
    )
    asked = (
        f"touch {work}/made && echo wrote; touch {project}/x || echo read-only; "
        f"cat {secret} || echo unseen; ls /home /srv || echo no-homes; "
        "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '; "
        f"mount -o remount,bind,rw {project} 2>/dev/null || echo locked"
    )
    said = run([
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all",
        "/usr/bin/python3", "-I", "-c", program, CHECKOUT, work, project, asked,
    ]).stdout  # fmt: skip
    words = [line for line in said.splitlines() if ":" not in line and line.strip()]
    assert words == ["wrote", "read-only", "unseen", "no-homes", "lo", "locked"]
    assert (work / "made").exists()
