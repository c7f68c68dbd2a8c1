# SPDX-License-Identifier: Apache-2.0
"""Run a playbook of Ansible's on the root: the same that people run on nodes over ssh.

ansible-core is a program of the builder (the package says how it is kept from the builder).  Its
version is no input: a layer is named by what a person and the lock decide, and the log says it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import cast

from imagebuilder.decode import parse_object, read_or_say
from imagebuilder.digest import Json, digest_of
from imagebuilder.errors import HostError, WorkError
from imagebuilder.playbook.command_socket import command_socket
from imagebuilder.playbook.controller import Controller, controller_sandbox, make_controller
from imagebuilder.playbook.facts import OF_MACHINES
from imagebuilder.playbook.machine_files import find_machine_words, make_machine_files
from imagebuilder.process import MOST, Word, base_environment, run
from imagebuilder.recipe.types import Playbook, Recipe
from imagebuilder.sandbox import INSIDE, Bind
from imagebuilder.sandbox_lasting import Inside, staying
from imagebuilder.steps import clean
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.finalise import find_identity
from imagebuilder.steps.generated import is_boot_file
from imagebuilder.steps.step import Step
from imagebuilder.workspace import Workspace

# Also for what the rest of this package does to a layer.
VERSION = 2
# The oldest that this was tried with: it names what plugins return as the newer ones do.
OLDEST = (2, 14)
PROGRAM = "ansible-playbook"
INSTALL = "pip install 'imagebuilder[ansible]' where imagebuilder is"
PYTHON = "/usr/bin/python3"
# What a playbook left running, then the sandbox's first process, which tidies the root.
END_ALL = """
import os, signal
try:
    os.kill(-1, signal.SIGKILL)  # refused where nothing is left
finally:
    os.kill(1, signal.SIGTERM)
"""
END_SECONDS = 10.0
IN_ROOT = {
    "SYSTEMD_OFFLINE": "1",
    "PYTHONHASHSEED": "0",  # sets that a template writes out have one order
}
# What `backup: true` leaves: named by process and time, so that no two builds are equal.
BACKUP = re.compile(r"\.\d+\.\d{4}-\d\d-\d\d@\d\d:\d\d:\d\d~$")
# Of root's home in clean.py, what a playbook may have meant to keep.
HOMES = ("/root/.ssh",)
# How Ansible says what is wrong before a task runs, and where (2.19 and newer; older).
SAID = re.compile(r"^(?:\[ERROR\]:|ERROR!) (.*)")
ORIGIN = re.compile(r"^Origin: (\S+)|appears to be in '([^']+)': line (\d+)")
# How Ansible says that there is no such fact or variable.
NO_FACT = re.compile(r"'?(ansible_\w+)'? is undefined|has no attribute '(\w+)'")
NO_NETWORK = re.compile(
    r"Network is unreachable|[Nn]ame resolution|Could not resolve|Name or service not known"
)
NO_VAULT = re.compile(r"no vault secrets", re.IGNORECASE)
NO_HOST = "a build reaches no other machine"  # our connection plugin
NOT_FOUND = re.compile(r"couldn't resolve module|the role '\S+' was not found")
IN_PROJECT = (
    "roles and collections are looked for beside the playbook: ansible-galaxy role install "
    "-p roles NAME, ansible-galaxy collection install -p collections NAME"
)
SKIP = "skip the task: when: imagebuilder_profile is not defined"
NO_PACKAGE = re.compile(r"No package matching|Unable to locate package|has no installation cand")


@dataclass(frozen=True)
class AnsibleStep(Step):
    """One playbook of an overlay, for the inventory's only host, which is named like the profile.

    `kernel` is the package that the image's kernel comes by.
    """

    overlay: str
    host: str
    kernel: str
    playbook: Playbook

    @property
    def title(self) -> str:
        return f"ansible {self.overlay} {self.playbook.name}"

    def inputs(self) -> Mapping[str, Json]:
        return {
            "step": f"ansible {VERSION}.{clean.VERSION}",
            "playbook": self.playbook.name,
            "project": self.playbook.files,
            # Digests, because a manifest is for everybody to read.
            "vars": {name: digest_of(value) for name, value in self.playbook.vars.items()},
            "inventory-groups": list(self.playbook.groups),
            "limited": self.playbook.limited,
            "network": self.playbook.network,
            "host": self.host,
            "epoch": self.epoch,
        }

    @property
    def checks(self) -> tuple[Callable[[], object], ...]:
        return (check_ansible,)

    def apply(self, workspace: Workspace) -> None:
        program = find_ansible()
        if workspace.ask(["test", "-x", PYTHON], check=False).status != 0:
            raise WorkError(
                f"the root has no {PYTHON}, which every module of Ansible's needs",
                hint="list python3 under `packages:` of an overlay",
            )
        controller = make_controller(workspace, self.playbook, self.host, self.kernel, program)
        run_playbook(workspace, self, controller)
        tell_skipped(workspace, controller)
        run_clean(workspace)
        tidy(workspace)


def playbook_steps(recipe: Recipe, epoch: int) -> Iterator[AnsibleStep]:
    """The playbooks of all overlays: they find a root that is configured, as on a node."""
    for overlay in recipe.overlays:
        for playbook in overlay.playbooks:
            yield AnsibleStep(
                overlay.name, recipe.profile, recipe.base.kernel, playbook, epoch=epoch
            )


def find_ansible() -> Path:
    """ansible-playbook of our own environment, or else of the host.  Raises HostError."""
    own = Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM, path=base_environment()["PATH"])
    program = own if own.exists() else Path(found) if found else None
    if program is None:
        raise HostError(
            f"{PROGRAM} is not installed",
            hint=f"{INSTALL}, or install ansible-core",
        )
    return program


def check_ansible() -> str:
    """The version of ansible-core that playbooks will run with.  Raises HostError."""
    program = find_ansible()
    said = run([program, "--version"], check=False)
    version = re.search(r"core (\d+)\.(\d+)[^\]\s]*", said.stdout)
    if said.status != 0 or version is None:
        words = (said.stderr or said.stdout).strip()[-MOST:]
        raise HostError(
            f"{program} does not say its version\n    {words}",
            hint="install ansible-core anew",
        )
    if (int(version[1]), int(version[2])) < OLDEST:
        raise HostError(
            f"{program} is of ansible-{version[0]}, at least {OLDEST[0]}.{OLDEST[1]} is needed",
            hint=INSTALL,
        )
    return version[0].removeprefix("core ")


def run_playbook(workspace: Workspace, step: AnsibleStep, controller: Controller) -> None:
    """Run it to its end.  Raises WorkError that says which task failed and why."""
    lines: list[str] = []

    def see(line: str) -> None:
        lines.append(line)
        if workspace.on_line:
            workspace.on_line(line)

    try:
        run_inside(workspace, step.playbook, controller, see)
    except WorkError as error:
        raise told_error(workspace, step, controller, lines) or error from error
    told = read_told(controller.told)
    stats = next((row for row in told if row["event"] == "stats"), {})
    if not stats.get("ok"):
        raise WorkError(
            f"no play of {step.playbook.name} is for this image",
            hint=f"the image is the host {step.host}, in the groups: "
            f"{', '.join(step.playbook.groups) or 'none'}; ansible_groups names others",
        )
    facts = {name: int(stats[name]) for name in ("ok", "changed")}
    skipped = sum(row["kind"] == "service" for row in read_told(controller.skipped))
    workspace.facts.write_text(json.dumps({**facts, "service-starts-skipped": skipped}))


def run_inside(
    workspace: Workspace, playbook: Playbook, controller: Controller, see: Callable[[str], None]
) -> None:
    """Run Ansible in a sandbox of its own, and its commands in the root's.  Raises WorkError.

    A playbook may run code on Ansible's side (lookups, `pipe`): it sees the project and programs.
    """
    network, top = playbook.network, controller.top
    given = Bind(top / "inside", INSIDE / "ansible")
    skipped = Bind(controller.skipped, INSIDE / "skipped", writable=True)
    env = {**IN_ROOT, **workspace.family.ansible.environment}
    root = workspace.sandbox(binds=(given, skipped), network=network, env=env)
    outer = controller_sandbox(controller, playbook, workspace.epoch, network=network)
    argv: list[Word] = ["env", f"--chdir={playbook.project}", *controller.argv]
    with staying(root, top / "sandbox.log") as inside, command_socket(top, inside), ended(inside):
        words = make_machine_files(inside)
        run([PYTHON, "-IS", INSIDE / "ansible/prepare.py"], sandbox=inside)
        run(argv, sandbox=outer, log=workspace.log, on_line=see)
    if place := find_machine_words(workspace.tree, list(written(workspace)), words):
        raise WorkError(
            f"the playbook wrote a machine-id or an ssh host key into {place}",
            where=place,
            hint=f"each node makes its own when it boots: {SKIP}",
        )


@contextmanager
def ended(inside: Inside) -> Iterator[None]:
    """Whatever the playbook left running ends; the sandbox then tidies up its root and ends."""
    try:
        yield
    finally:
        run([PYTHON, "-ISc", END_ALL], sandbox=inside, check=False)
        deadline = time.monotonic() + END_SECONDS
        while Path(f"/proc/{inside.pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def told_error(
    workspace: Workspace, step: AnsibleStep, controller: Controller, lines: Sequence[str]
) -> WorkError | None:
    """The error for what the callback, or else Ansible itself, has told."""
    name = step.playbook.name
    failed = [row for row in read_told(controller.told) if row["event"] == "failed"]
    log = f"whole log: {workspace.log}"
    if failed:
        row = failed[-1]
        what = f'{name} failed: play "{row["play"]}", task "{row["task"]}"\n    {row["what"]}'
        todo = [*hints(row["what"], network=step.playbook.network), log]
        return WorkError(what, where=row["where"], hint="\n        ".join(todo))
    for number, line in enumerate(lines):
        if said := SAID.match(line):
            more = "\n".join(lines[number : number + 12])
            place = ORIGIN.search(more) or re.search(ORIGIN.pattern, more, re.MULTILINE)
            where = (place[1] or f"{place[2]}:{place[3]}") if place else ""
            todo = [IN_PROJECT, log] if NOT_FOUND.search(said[1]) else [log]
            what = f"{name} cannot run: {said[1]}"
            return WorkError(what, where=where, hint="\n        ".join(todo))
    return None


def hints(what: str, *, network: bool) -> Iterator[str]:
    """What to do about kinds of failures that only an image has."""
    missing = NO_FACT.search(what)
    if missing and OF_MACHINES.match(missing[1] or missing[2]):
        yield (
            "memory, processors, disks and addresses are a node's and not known in an image: let a "
            f"unit find them at boot, or {SKIP}"
        )
    if NO_PACKAGE.search(what):
        yield (
            "an image's packages are locked: `imagebuilder lock PROFILE --add-packages` finds "
            "what the playbook asks for and adds it to the overlay"
        )
    if NO_NETWORK.search(what) and not network:
        yield f"tasks have no network here: ansible_network: true gives it, or {SKIP}"
    if NO_HOST in what:
        yield SKIP
    if NO_VAULT.search(what):
        yield "vaults stay closed, for an image is read by many: a secret is a node's own file"


def read_told(path: Path) -> list[dict[str, str]]:
    """The JSON lines that plugins and programs inside have written."""
    if not path.exists():
        return []
    lines = read_or_say(path, "").splitlines()
    return [cast("dict[str, str]", parse_object(line, path.name, whole=True)) for line in lines]


def tell_skipped(workspace: Workspace, controller: Controller) -> None:
    """Say what the playbook wanted of a running node, which an image is not."""
    rows = read_told(controller.skipped)
    starts = unique(f"{r['what']} ({r['verb']})" for r in rows if r["kind"] == "service")
    others, reads, boots = (
        unique(r["what"] for r in rows if r["kind"] == kind) for kind in ("machine", "read", "boot")
    )
    said = []
    if starts:
        many = f"{len(starts)} service start{'s' * (len(starts) != 1)} skipped"
        said.append(f"{many}: {', '.join(starts)}")
    if others:
        said.append(f"done by the node when it boots: {', '.join(others)}")
    if reads:
        said.append(f"answered by the builder's kernel; a node's may differ: {', '.join(reads)}")
    if boots:
        said.append(f"not done, for initrd and boot loader are not the root's: {', '.join(boots)}")
    if lost := lost_files(workspace):
        said.append(f"not part of the image, because each node has its own: {', '.join(lost)}")
    for place in boot_files(workspace):
        said.append(f"the initrd is made before playbooks and has no {place}")
    with workspace.log.open("a") as log:
        log.writelines(f"{line}\n" for line in said)
    if workspace.on_note:
        for line in said:
            workspace.on_note(line)


def unique(texts: Iterator[str]) -> list[str]:
    """The texts in order, each once."""
    return list(dict.fromkeys(texts))


def written(workspace: Workspace) -> Iterator[Path]:
    """The files that are new or changed, as they lie in the upper."""
    for folder, _, names in os.walk(workspace.tree):
        yield from (Path(folder, name) for name in names)


def boot_files(workspace: Workspace) -> list[str]:
    """The files the playbook has written that an initrd would read."""
    places = (f"/{path.relative_to(workspace.tree)}" for path in written(workspace))
    return sorted(place for place in places if is_boot_file(place))


def lost_files(workspace: Workspace) -> list[str]:
    """The files the playbook has written that no image keeps: keys, names, a root's own."""
    kept_back = (*find_identity(workspace.family), *HOMES)
    places = sorted(f"/{path.relative_to(workspace.tree)}" for path in written(workspace))
    return [
        place
        for place in places
        if any(PurePath(place).match(glob) or is_below(place, glob) for glob in kept_back)
    ]


def is_below(place: str, folder: str) -> bool:
    """Whether a folder that goes as a whole has the file."""
    return PurePath(place).is_relative_to(folder)


def tidy(workspace: Workspace) -> None:
    """Remove what Ansible leaves and no two builds have alike, and what no image keeps."""
    for path in list(written(workspace)):
        if BACKUP.search(path.name):
            path.unlink()
    if lost := lost_files(workspace):
        workspace.run(["rm", "-rf", "--", *lost])
