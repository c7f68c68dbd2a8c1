# SPDX-License-Identifier: Apache-2.0
"""Apply one overlay's accounts, files, scripts and units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.recipe.types import Group, Script, TreeFile, Units, User
from imagebuilder.sandbox.sandbox import INSIDE, Bind
from imagebuilder.steps import clean
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.placed import copy_program, files_input, run_place
from imagebuilder.steps.step import Step, StepWorkspace

VERSION = 1


@dataclass(frozen=True)
class ConfigStep(Step):
    """What an overlay changes beside packages and Python environments."""

    overlay: str
    groups: tuple[Group, ...]
    users: tuple[User, ...]
    files: tuple[TreeFile, ...]
    scripts: tuple[Script, ...]
    units: Units

    @property
    def title(self) -> str:
        return f"configure {self.overlay}"

    @property
    def empty(self) -> bool:
        return not (self.groups or self.users or self.files or self.scripts) and (
            self.units == Units()
        )

    def inputs(self) -> Mapping[str, Json]:
        return {
            "step": f"config {VERSION}.{clean.VERSION}",
            "groups": {g.name: [g.gid, g.system] for g in self.groups},
            "users": {
                u.name: [u.uid, u.home, u.shell, list(u.groups), u.system, u.comment]
                for u in self.users
            },
            "files": files_input(self.files),
            "scripts": {s.name: s.digest + " network" * s.network for s in self.scripts},
            "script-order": [s.name for s in self.scripts],
            "units": {
                "enable": list(self.units.enable),
                "disable": list(self.units.disable),
                "mask": list(self.units.mask),
            },
            "epoch": self.epoch,
        }

    def apply(self, workspace: StepWorkspace) -> None:
        add_groups(workspace, self.groups)
        add_users(workspace, self.users)
        check_owners(workspace, self.files)
        run_place(workspace, self.files)
        for script in self.scripts:
            run_script(workspace, self.overlay, script)
        for verb, names in (
            ("enable", self.units.enable),
            ("disable", self.units.disable),
            ("mask", self.units.mask),
        ):
            if names:
                workspace.run(["systemctl", verb, "--", *names])
        run_clean(workspace)


def known(workspace: StepWorkspace, database: str, names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that getent(1) of the root knows in `database`."""
    wanted = sorted(set(names))
    if not wanted:
        return frozenset()
    said = workspace.ask(["getent", database, *wanted], check=False).stdout
    return frozenset(line.partition(":")[0] for line in said.splitlines())


def add_groups(workspace: StepWorkspace, groups: Sequence[Group]) -> None:
    """groupadd(8) for each that the root does not have."""
    there = known(workspace, "group", (group.name for group in groups))
    for group in groups:
        if group.name not in there:
            system = ["--system"] if group.system else []
            gid = [f"--gid={group.gid}"] if group.gid is not None else []
            workspace.run(["groupadd", *system, *gid, "--", group.name])


def add_users(workspace: StepWorkspace, users: Sequence[User]) -> None:
    """useradd(8) for each, or usermod(8) for an account of a package.  Raises WorkError."""
    groups = known(workspace, "group", (name for user in users for name in user.groups))
    there = known(workspace, "passwd", (user.name for user in users))
    for user in users:
        for name in user.groups:
            if name not in groups:
                raise WorkError(
                    f"user {user.name} should be in group {name}, which the root does not have",
                    hint=f"declare it under `groups:` of the overlay, or drop {name}",
                )
        add_user(workspace, user, there=user.name in there)
        groups |= {user.name}  # its own, which the next user may be in


def add_user(workspace: StepWorkspace, user: User, *, there: bool) -> None:
    """Make one account, or put one that is there in its groups."""
    groups = [f"--groups={','.join(user.groups)}"] if user.groups else []
    if there:
        if groups:
            workspace.run(["usermod", "--append", *groups, "--", user.name])
        return
    home = user.home or f"/home/{user.name}"
    kind = ["--system"] if user.system else []
    uid = [f"--uid={user.uid}"] if user.uid is not None else []
    workspace.run(
        ["useradd", *kind, *uid, "--user-group", "--create-home", f"--home-dir={home}",
         f"--shell={user.shell}", f"--comment={user.comment}", *groups, "--", user.name]
    )  # fmt: skip


def check_owners(workspace: StepWorkspace, files: tuple[TreeFile, ...]) -> None:
    """Refuse files whose owner or group the root does not know.  Raises WorkError."""
    for database, named in (
        ("passwd", {f.owner for f in files}),
        ("group", {f.group for f in files}),
    ):
        names = named - {"root"}
        for name in sorted(names - known(workspace, database, names)):
            raise WorkError(
                f"files belong to {name}, which is not in the root's {database}",
                hint="declare it under `users:` or `groups:` of the overlay",
            )


def run_script(workspace: StepWorkspace, overlay: str, script: Script) -> None:
    """Run one script as root in the root; it sees nothing of the host but itself."""
    inside = INSIDE / "script"
    copy = workspace.work / f"{workspace.upper}.script"
    copy_program(script, copy)
    try:
        workspace.run([inside], binds=[Bind(copy, inside)], network=script.network)
    except WorkError as error:
        raise WorkError(
            error.faults[0].what.replace("script failed", f"{script.name} failed", 1),
            where=f"overlays/{overlay}/{script.name}",
            hint=error.faults[0].hint,
        ) from error
