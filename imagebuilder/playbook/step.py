# SPDX-License-Identifier: Apache-2.0
"""Run an Ansible playbook on the root, unchanged from how it runs on nodes over ssh.

ansible-core is a program of the builder, isolated as described in the package's docstring.  Its
version is not an input of the layer, which only depends on the recipe and the lock; the log has it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

from imagebuilder.digest import Json, digest_of
from imagebuilder.errors import HostError, WorkError
from imagebuilder.families.tool import find_program
from imagebuilder.folders import folders_below
from imagebuilder.playbook.command_socket import command_socket
from imagebuilder.playbook.controller import (
    Controller,
    controller_sandbox,
    find_machine_words,
    make_controller,
    make_machine_files,
)
from imagebuilder.playbook.facts import OF_MACHINES
from imagebuilder.playbook.rows import SkippedRow, ToldRow, list_words, read_rows
from imagebuilder.process import MOST, Word, run
from imagebuilder.recipe.project import digests_of_project
from imagebuilder.recipe.types import Playbook, Recipe
from imagebuilder.sandbox.lasting import Inside, staying
from imagebuilder.sandbox.sandbox import INSIDE, Bind
from imagebuilder.steps import clean as cleaning
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.finalise import find_identity
from imagebuilder.steps.placed import changed, is_boot_file
from imagebuilder.steps.step import Step, StepWorkspace
from imagebuilder.ui import format_count
from imagebuilder.untrusted import MOST_LONG, clean, fit

# Covers everything that this package does to a layer.
VERSION = 2
# The oldest tested version: its plugins return the same keys as newer ones.
OLDEST = (2, 14)
PROGRAM = "ansible-playbook"
INSTALL = "pip install 'imagebuilder[ansible]' in the environment of imagebuilder"
PYTHON = "/usr/bin/python3"
# Ends what a playbook left running, then the sandbox's first process, which cleans up the root.
END_ALL = """
import os, signal
try:
    os.kill(-1, signal.SIGKILL)  # refused where nothing is left
finally:
    os.kill(1, signal.SIGTERM)
"""
END_SECONDS = 10.0
SAID_LINES = 12  # of an error of Ansible
# What only a node can do, by the kind of a row.
LEFT_TO_NODES = (
    ("machine", "done by the node when it boots"),
    ("read", "answered by the builder's kernel; a node's may differ"),
    ("boot", "skipped, because initrd and boot loader are not part of the root"),
)
IN_ROOT = {
    "SYSTEMD_OFFLINE": "1",
    "PYTHONHASHSEED": "0",  # sets that a template writes out have one order
}
# Files of `backup: true`, whose names contain process id and time and differ between builds.
BACKUP = re.compile(r"\.\d+\.\d{4}-\d\d-\d\d@\d\d:\d\d:\d\d~$")
# Folders of root's home that clean.py removes and a playbook may have written on purpose.
HOMES = ("/root/.ssh",)
# Ansible's messages for errors before a task runs, and their places (2.19 and newer; older).
ERROR = re.compile(r"^(?:\[ERROR\]:|ERROR!) (.*)")
ORIGIN = re.compile(r"^Origin: (\S+)|appears to be in '([^']+)': line (\d+)")
# Ansible's messages for an undefined fact or variable.
NO_FACT = re.compile(r"'?(?<!\w)(ansible_\w+)'? is undefined|has no attribute '(\w+)'")
NO_NETWORK = re.compile(
    r"Network is unreachable|[Nn]ame resolution|Could not resolve|Name or service not known"
)
NO_VAULT = re.compile(r"no vault secrets", re.IGNORECASE)
NO_HOST = "a build reaches no other machine"  # our connection plugin
NOT_FOUND = re.compile(r"couldn't resolve module|the role '\S+' was not found")
IN_PROJECT = (
    "roles and collections must be beside the playbook: ansible-galaxy role install "
    "-p roles NAME, ansible-galaxy collection install -p collections NAME"
)
SKIP = "skip the task: when: imagebuilder_profile is not defined"
NO_PACKAGE = re.compile(
    r"No package matching|Unable to locate package|has no installation cand|"
    r"No match for argument|Failed to install some of the specified packages"
)


@dataclass(frozen=True)
class AnsibleStep(Step):
    """One playbook of an overlay, for the inventory's only host, which is named like the profile.

    `kernel` is the package of the image's kernel.
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
            "step": f"ansible {VERSION}.{cleaning.VERSION}",
            "playbook": self.playbook.name,
            "project": self.playbook.files,
            # Digests, because everybody can read a manifest.
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

    def apply(self, workspace: StepWorkspace) -> None:
        program = find_ansible()
        if workspace.ask(["test", "-x", PYTHON], check=False).status != 0:
            raise WorkError(
                f"the root has no {PYTHON}, which every Ansible module needs",
                hint="list python3 under `packages:` of an overlay",
            )
        controller = make_controller(workspace, self.playbook, self.host, self.kernel, program)
        run_playbook(workspace, self, controller)
        check_unchanged(self.playbook)
        tell_skipped(workspace, controller)
        run_clean(workspace)
        tidy(workspace)


def check_unchanged(playbook: Playbook) -> None:
    """Raise WorkError if a file of the project is not as the plan read it; Ansible reads each when
    it needs it.
    """
    if digests_of_project(playbook.project) != playbook.files:
        raise changed(playbook.project)


def playbook_steps(recipe: Recipe, epoch: int) -> Iterator[AnsibleStep]:
    """The playbooks of all overlays; they run on the configured root, as on a node."""
    for overlay in recipe.overlays:
        for playbook in overlay.playbooks:
            yield AnsibleStep(
                overlay.name, recipe.profile, recipe.base.kernel, playbook, epoch=epoch
            )


def find_ansible() -> Path:
    """ansible-playbook in our own Python environment, or else on the host.  Raises HostError."""
    program = find_program(PROGRAM)
    if program is None:
        raise HostError(f"{PROGRAM} is not installed", hint=f"{INSTALL}, or install ansible-core")
    return program


def check_ansible() -> str:
    """The version of ansible-core that runs playbooks.  Raises HostError."""
    program = find_ansible()
    done = run([program, "--version"], check=False)
    version = re.search(r"core (\d+)\.(\d+)[^\]\s]*", done.stdout)
    if done.status != 0 or version is None:
        words = (done.stderr or done.stdout).strip()[-MOST:]
        raise HostError(
            f"{program} does not print its version\n    {words}", hint="reinstall ansible-core"
        )
    if (int(version[1]), int(version[2])) < OLDEST:
        raise HostError(
            f"{program} is ansible-{version[0]}, but at least {OLDEST[0]}.{OLDEST[1]} is needed",
            hint=INSTALL,
        )
    return version[0].removeprefix("core ")


def run_playbook(workspace: StepWorkspace, step: AnsibleStep, controller: Controller) -> None:
    """Run the playbook.  Raises WorkError with the failed task and the reason."""
    lines: list[str] = []

    def see(line: str) -> None:
        if len(lines) < SAID_LINES and (lines or ERROR.match(line)):  # others may have no end
            lines.append(line)
        if workspace.on_line:
            workspace.on_line(line)

    try:
        run_inside(workspace, step.playbook, controller, see)
    except WorkError as error:
        raise reported_error(workspace, step, controller, lines) or error from error
    rows = read_rows(controller.told, ToldRow)
    stats = next((row for row in rows if row.event == "stats"), None)
    if stats is None or not stats.ok:
        raise WorkError(
            f"no play of {step.playbook.name} is for this image",
            hint=f"the image is the host {step.host}, in the groups: "
            f"{', '.join(step.playbook.groups) or 'none'}; ansible_groups names others",
        )
    skipped = sum(row.kind == "service" for row in read_rows(controller.skipped, SkippedRow))
    facts = {"ok": stats.ok, "changed": stats.changed, "service-starts-skipped": skipped}
    workspace.facts.write_text(json.dumps(facts))


def run_inside(
    workspace: StepWorkspace, playbook: Playbook, controller: Controller, see: Callable[[str], None]
) -> None:
    """Run Ansible in its own sandbox, and its commands in the root's.  Raises WorkError.

    Code that a playbook runs on Ansible's side (lookups, `pipe`) sees the project and programs.
    """
    network, top = playbook.network, controller.top
    files = Bind(top / "inside", INSIDE / "ansible")
    skipped = Bind(controller.skipped, INSIDE / "skipped", writable=True)
    env = {**IN_ROOT, **workspace.family.ansible.environment}
    root = workspace.sandbox(binds=(files, skipped), network=network, env=env)
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
            hint=f"each node creates its own when it boots: {SKIP}",
        )


@contextmanager
def ended(inside: Inside) -> Iterator[None]:
    """End whatever the playbook left running; the sandbox then cleans up its root and ends."""
    try:
        yield
    finally:
        run([PYTHON, "-ISc", END_ALL], sandbox=inside, check=False)
        deadline = time.monotonic() + END_SECONDS
        while Path(f"/proc/{inside.pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def reported_error(
    workspace: StepWorkspace, step: AnsibleStep, controller: Controller, lines: Sequence[str]
) -> WorkError | None:
    """The error that the callback, or else Ansible itself, reported; None if neither did."""
    name = step.playbook.name
    failed = [row for row in read_rows(controller.told, ToldRow) if row.event == "failed"]
    log = f"whole log: {workspace.log}"
    if failed:
        row = failed[-1]
        what = f'{name} failed: play "{row.play}", task "{row.task}"\n    {row.what}'
        todo = [*hints(row.what, network=step.playbook.network), log]
        return WorkError(what, where=row.where, hint="\n        ".join(todo))
    for number, line in enumerate(lines):
        if message := ERROR.match(clean(line, MOST_LONG)):
            more = "\n".join(clean(each, MOST_LONG) for each in lines[number : number + SAID_LINES])
            place = ORIGIN.search(more) or re.search(ORIGIN.pattern, more, re.MULTILINE)
            where = (place[1] or f"{place[2]}:{place[3]}") if place else ""
            todo = [IN_PROJECT, log] if NOT_FOUND.search(message[1]) else [log]
            what = f"{name} cannot run: {message[1]}"
            return WorkError(what, where=where, hint="\n        ".join(todo))
    return None


def hints(what: str, *, network: bool) -> Iterator[str]:
    """Hints for failures that only occur in an image."""
    missing = NO_FACT.search(what)
    if missing and OF_MACHINES.match(missing[1] or missing[2]):
        yield (
            "memory, processors, disks and addresses belong to a node and are unknown in an image: "
            f"read them in a unit at boot, or {SKIP}"
        )
    if NO_PACKAGE.search(what):
        yield (
            "an image's packages are locked: `imagebuilder lock PROFILE --add-packages` finds the "
            "packages that the playbook requests and adds them to the overlay"
        )
    if NO_NETWORK.search(what) and not network:
        yield f"tasks have no network here: set ansible_network: true, or {SKIP}"
    if NO_HOST in what:
        yield SKIP
    if NO_VAULT.search(what):
        yield (
            "vaults are not decrypted, because everybody can read an image: provide a secret as "
            "one of the node's own files"
        )


def tell_skipped(workspace: StepWorkspace, controller: Controller) -> None:
    """Report what the playbook requested that only a running node can do."""
    rows = read_rows(controller.skipped, SkippedRow)
    starts = [f"{row.what} ({row.verb})" for row in rows if row.kind == "service"]
    notes = []
    if starts:
        many = f"{format_count(len({*starts}), 'service start')} skipped"
        notes.append(f"{many}: {list_words(starts)}")
    for kind, words in LEFT_TO_NODES:
        if found := list_words(row.what for row in rows if row.kind == kind):
            notes.append(f"{words}: {found}")
    if lost := lost_files(workspace):
        named = list_words(map(fit, lost))
        notes.append(f"not part of the image, because each node has its own: {named}")
    if places := list_words(map(fit, boot_files(workspace))):
        notes.append(f"the initrd is made before playbooks run and does not contain {places}")
    with workspace.log.open("a") as log:
        log.writelines(f"{line}\n" for line in notes)
    if workspace.on_note:
        for line in notes:
            workspace.on_note(line)


def written(workspace: StepWorkspace) -> Iterator[Path]:
    """The new and changed files in the upper."""
    for folder, _, names in folders_below(workspace.tree):
        yield from (Path(folder, name) for name in names)


def boot_files(workspace: StepWorkspace) -> list[str]:
    """The files written by the playbook that an initrd would contain."""
    places = (f"/{path.relative_to(workspace.tree)}" for path in written(workspace))
    return sorted(place for place in places if is_boot_file(place))


def lost_files(workspace: StepWorkspace) -> list[str]:
    """The files written by the playbook that no image keeps: keys, names, root's ssh files."""
    removed = (*find_identity(workspace.family), *HOMES)
    places = sorted(f"/{path.relative_to(workspace.tree)}" for path in written(workspace))
    return [
        place
        for place in places
        if any(PurePath(place).match(g) or PurePath(place).is_relative_to(g) for g in removed)
    ]


def tidy(workspace: StepWorkspace) -> None:
    """Remove files of Ansible that differ between builds, and files that no image keeps."""
    for path in list(written(workspace)):
        if BACKUP.search(path.name):
            path.unlink()
    if lost := lost_files(workspace):
        workspace.run(["rm", "-rf", "--", *lost])
