# SPDX-License-Identifier: Apache-2.0
"""Playbooks on a real root: what they make, what is skipped, and that the host stays as it is."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.lock.verified import Pool
from imagebuilder.playbook.step import AnsibleStep
from imagebuilder.recipe.project import digests_of_project
from imagebuilder.recipe.types import Playbook
from imagebuilder.steps.step import StepWorkspace
from imagebuilder.store.repository import Store
from imagebuilder.store.upper import settle, walk
from tests.integration.started import command_lines, wait_until
from tests.workshop import CHECKOUT, Workshop

pytestmark = pytest.mark.root

EPOCH = 1_700_000_000
EXAMPLE = CHECKOUT / "overlays/ansible/example"
# What every node playbook has in it, and no image can do; and all that `setup` says.
MORE = """
- hosts: all
  tasks:
    - name: Facts
      ansible.builtin.copy:
        dest: /etc/facts.json
        content: "{{ ansible_facts | to_json }} {{ lookup('pipe', 'ls /dev /run') | to_json }}"
    - ansible.builtin.shell: uname -r > /etc/release; sysctl -p; modprobe dummy
    - reboot:
"""
OTHERS = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ lookup('pipe', 'touch %s || date -s 2001-01-01') }}"
      ignore_errors: true
    - name: Elsewhere
      ansible.builtin.command: touch /delegated
      delegate_to: "{{ 'local' ~ 'host' }}"
"""


@dataclass
class Builder:
    """Runs playbooks on the root of `generic`; `notes` is what a person is told of each run."""

    top: Path
    root: Path
    notes: dict[str, list[str]]

    def step(self, project: Path) -> AnsibleStep:
        """The step for site.yml of a folder."""
        files = digests_of_project(project)
        play = Playbook("site.yml", project, files, {}, ("gpu_nodes",))
        return AnsibleStep("own", "demo", "linux-image-amd64", play, epoch=EPOCH)

    def workspace(self, name: str) -> StepWorkspace:
        """A fresh workspace."""
        work = self.top / name
        (work / "u").mkdir(parents=True)
        (work / "c").symlink_to(self.root)
        return StepWorkspace(
            work,
            ("c",),
            "u",
            EPOCH,
            work / "log",
            Pool(work, work),
            family=APT,
            on_note=self.notes.setdefault(name, []).append,
        )

    def run(self, project: Path, name: str) -> Path:
        """Run the playbook; the settled layer."""
        workspace = self.workspace(name)
        self.step(project).apply(workspace)
        assert settle(workspace.tree, [self.root]).additive
        return workspace.tree


@pytest.fixture(scope="module")
def generic_root(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of `generic`, for reading."""
    manifest = json.loads(workshop("show", "generic", "--json").stdout)
    place = tmp_path_factory.mktemp("generic") / "root"
    Store(workshop.state / "store").checkout(str(manifest["root"]["commit"]), place)
    return place


@pytest.fixture
def builder(generic_root: Path, tmp_path: Path) -> Builder:
    """Somewhere to run playbooks."""
    return Builder(tmp_path, generic_root, {})


def write_site(folder: Path, text: str) -> Path:
    """A project of one playbook."""
    folder.mkdir()
    (folder / "site.yml").write_text(text)
    return folder


def example_of(tmp_path: Path) -> Path:
    """The shipped example without the apt task (generic has no python3-apt), and with MORE."""
    project = tmp_path / "project"
    for path, _ in walk(EXAMPLE):
        target = project / path.relative_to(EXAMPLE)
        if path.is_dir():
            target.mkdir()
        else:
            blocks = path.read_text().split("\n\n")
            target.write_text("\n\n".join(b for b in blocks if "ansible.builtin.apt:" not in b))
    # One look at the facts is enough for both plays.
    (project / "ansible.cfg").write_text("[defaults]\ngathering = smart\n")
    with (project / "site.yml").open("a") as site:
        site.write(MORE)
    return project


def listing(tree: Path) -> dict[str, tuple[object, ...]]:
    """Everything of a layer that the store keeps."""
    return {
        os.fspath(path.relative_to(tree)): (
            info.st_mode,
            info.st_uid,
            path.readlink() if path.is_symlink() else path.is_file() and digest_of_file(path),
        )
        for path, info in walk(tree)
    }


def test_the_example_becomes_a_layer_and_the_same_one_twice(
    builder: Builder, tmp_path: Path
) -> None:
    project = example_of(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        made, again = pool.map(lambda name: builder.run(project, name), ("one", "two"))
    assert listing(again) == listing(made)
    release = next(path.name for path in (builder.root / "usr/lib/modules").iterdir())
    assert release in (made / "etc/motd").read_text()
    assert (made / "etc/release").read_text() == f"{release}\n"
    wanted = made / "etc/systemd/system/multi-user.target.wants/node-scratch.service"
    assert os.fspath(wanted.readlink()) == "/etc/systemd/system/node-scratch.service"
    assert (made / "home/operator/.bash_aliases").stat().st_uid == 4000
    assert builder.notes["one"] == [
        "3 service starts skipped: node-scratch (start), node-scratch (restart), ssh (reload)",
        "done by the node when it boots: sysctl -p, modprobe dummy, reboot",
    ]
    log = (tmp_path / "one/log").read_text()
    assert builder.notes["one"][0] in log
    assert log.count("TASK [Gathering Facts]") == 1
    check_facts((made / "etc/facts.json").read_text(), release)
    files = {path.relative_to(made).parts[0] for path, _ in walk(made) if not path.is_dir()}
    assert files == {"etc", "home"}


def check_facts(text: str, release: str) -> None:
    """Facts of the image, and neither facts, devices nor sockets of this host."""
    facts, _ = json.JSONDecoder().raw_decode(text)
    assert (facts["hostname"], facts["kernel"]) == ("demo", release)
    assert facts["distribution_release"] == "forky"
    assert facts["service_mgr"] == "systemd"
    here = os.uname()
    for word in (here.nodename, here.release, "memtotal", "processor", "docker.sock", "loop0"):
        assert word == release or word not in text, word


def test_the_builder_is_out_of_reach(builder: Builder, tmp_path: Path) -> None:
    escaped = Path("/var/tmp/imagebuilder-test-escaped")
    project = write_site(tmp_path / "project", OTHERS % escaped)
    with pytest.raises(WorkError) as caught:
        builder.run(project, "one")
    fault = caught.value.faults[0]
    assert fault.where.startswith(f"{project}/site.yml:8")
    assert 'play "all", task "Elsewhere"' in fault.what
    assert "is for localhost, not for the image" in fault.what
    assert not escaped.exists()
    assert not (tmp_path / "one/u/delegated").exists()
    assert time.gmtime().tm_year > 2020


@pytest.mark.parametrize(
    "place",
    ["/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub"],
    ids=["machine-id", "host-key"],
)
def test_nothing_of_the_feigned_machine_stays(builder: Builder, tmp_path: Path, place: str) -> None:
    text = f"- hosts: all\n  gather_facts: false\n  tasks: [{{command: cp {place} /etc/mine}}]\n"
    project = write_site(tmp_path / "project", text)
    with pytest.raises(WorkError, match="wrote a machine-id or an ssh host key into /etc/mine"):
        builder.run(project, "one")


def test_killed_builder_leaves_nothing(builder: Builder, tmp_path: Path) -> None:
    nap = 20_000_000 + os.getpid()  # seconds that nobody else sleeps
    text = f"- hosts: all\n  gather_facts: false\n  tasks: [{{command: sleep {nap}}}]\n"
    words = f"sleep\0{nap}".encode()
    project = write_site(tmp_path / "project", text)
    code = (
        "from pathlib import Path\n"
        "from tests.integration.test_ansible import Builder\n"
        f"Builder(Path({os.fspath(tmp_path)!r}), Path({os.fspath(builder.root)!r}), {{}})"
        f".run(Path({os.fspath(project)!r}), 'one')\n"
    )
    pid = os.spawnvpe(
        os.P_NOWAIT, sys.executable, [sys.executable, "-c", code],
        {**os.environ, "PYTHONPATH": os.fspath(CHECKOUT)},
    )  # fmt: skip
    wait_until(lambda: running(words), "the playbook does not run")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    place = os.fspath(tmp_path / "one").encode()
    wait_until(
        lambda: not running(words) and not running(place),
        "processes of the playbook survived",
    )


def running(words: bytes) -> bool:
    """Whether a process of this host has these words in its command line."""
    return any(words in line for line in command_lines().values())
