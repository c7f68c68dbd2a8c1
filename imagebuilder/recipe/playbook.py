# SPDX-License-Identifier: Apache-2.0
"""Check an Ansible playbook before it runs: which hosts it targets, and what no build may do.

Only certain faults are reported here: templates, and tasks with a `when:`, are checked when the
playbook runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.recipe.plays import PlayEntry, entries_of, read_entries

BUILDER = frozenset(("localhost", "127.0.0.1", "::1"))
PLAY_TASKS = ("pre_tasks", "tasks", "post_tasks", "handlers")
BLOCKS = ("block", "rescue", "always")
TASK_FILES = ("include_tasks", "import_tasks")
ROLES = ("include_role", "import_role")
# Between the terms of a pattern, not within `[0:5]`.
SEPARATOR = re.compile(r"[,:](?![^\[]{0,64}\])")
INSTEAD = "skip the task in an image: when: imagebuilder_profile is not defined"


@dataclass
class Reading:
    """A playbook being read.  `groups` collects the groups unless the recipe named them."""

    project: Path
    shown: str
    host: str
    named: frozenset[str]
    groups: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)

    def fault(self, path: Path, node: PlayEntry, key: str, what: str, hint: str) -> None:
        mark = node.marks[key]
        self.faults.append(Fault(f"{self.place(path)}:{mark.line}:{mark.column}", what, hint))

    def place(self, path: Path) -> str:
        inside = path.is_relative_to(self.project)
        return f"{self.shown}/{path.relative_to(self.project)}" if inside else str(path)

    def read_list(self, path: Path) -> list[PlayEntry]:
        """The plays or tasks of a file; empty, with a fault, if it is not YAML."""
        if path in self.seen or not path.is_file():
            return []
        # A file that includes itself through `..` has another name each time.
        real = path.resolve()
        known = real in self.seen
        self.seen.update((path, real))
        if known:
            return []
        try:
            return read_entries(path, self.place(path))
        except InputError as error:
            for fault in error.faults:
                self.faults.append(replace(fault, hint=fault.hint or "fix the playbook"))
            return []


def read_playbook(
    playbook: Path, project: Path, shown: str, host: str, named: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Fault, ...]]:
    """The groups of the image, the inventory's only `host`, and the faults of the playbook.

    `named` are the groups that the recipe names; if empty, every group that a play names counts.
    `shown` is the project's folder for people.
    """
    reading = Reading(project, shown, host, frozenset(named))
    try:
        read_plays(reading, playbook)
    except RecursionError:
        what = "includes too many files, each from within another"
        fault = Fault(reading.place(playbook), what, "include them from the playbook itself")
        reading.faults.append(fault)
    found = reading.named or reading.groups
    # What an alias repeats has its faults where it is written.
    return tuple(sorted(found - {host, "all"})), tuple(dict.fromkeys(reading.faults))


def read_plays(reading: Reading, path: Path) -> None:
    for play in reading.read_list(path):
        imported = text_of(play, "import_playbook", "ansible.builtin.import_playbook")
        if imported and not conditional(play):
            read_plays(reading, path.parent / imported)
        elif "hosts" in play and is_for_us(reading, play):
            read_play(reading, path, play)


def is_for_us(reading: Reading, play: PlayEntry) -> bool:
    """Whether the play may target the image; every play does unless the recipe names groups."""
    terms = [*host_terms(play["hosts"])]
    if not reading.named:
        reading.groups.update(group_name(t) for t in terms if t[:1] not in ("!", "~"))
        return True
    ours = {reading.host, "all", *reading.named}
    hits = {term: any(fnmatchcase(name, term.lstrip("&!")) for name in ours) for term in terms}
    wanted = any(hit for term, hit in hits.items() if term[0] not in "&!")
    return wanted and all(hit == (t[0] == "&") for t, hit in hits.items() if t[0] in "&!")


def host_terms(hosts: object) -> Iterator[str]:
    """The terms of a play's pattern that are not templates."""
    texts = hosts if isinstance(hosts, list) else [hosts]
    for text in texts:
        if "{{" in str(text):
            continue
        for term in SEPARATOR.split(str(text)):
            if term.strip():
                yield term.strip()


def group_name(term: str) -> str:
    """A group that a term matches: `gpu*` matches `gpux`, `gpu[0]` is the first of `gpu`."""
    bare = re.sub(r"\[[^\[\]]*\]", "", term.lstrip("&"))
    return "all" if bare == "*" else re.sub(r"[*?]", "x", bare)


def read_play(reading: Reading, path: Path, play: PlayEntry) -> None:
    """One play: the host it names, its tasks and its roles."""
    here = BUILDER & set(host_terms(play["hosts"]))
    if here:
        what = f"this play is for {min(here)}: it would change the builder"
        hint = "move it to another playbook, or name the image's groups: ansible_groups"
        reading.fault(path, play, "hosts", what, hint)
    elif play.get("connection") == "local":
        refuse_local(reading, path, play, "connection")
    for key in PLAY_TASKS:
        read_tasks(reading, path, entries_of(play.get(key)))
    roles = play.get("roles") or []
    if not isinstance(roles, list):
        what = "roles: needs a list of roles"
        reading.fault(path, play, "roles", what, "begin each with a hyphen")
        return
    for role in roles:
        name = role if isinstance(role, str) else text_of(role, "role", "name")
        if name and not (isinstance(role, PlayEntry) and conditional(role)):
            read_role(reading, path, name)


def refuse_local(reading: Reading, path: Path, node: PlayEntry, key: str) -> None:
    what = f"{key}: {node[key]} would run on the builder" if key == "connection" else (
        f"{key} would run on the builder")  # fmt: skip
    reading.fault(path, node, key, what, INSTEAD)


def read_tasks(reading: Reading, path: Path, tasks: Iterable[PlayEntry]) -> None:
    """Tasks, with those of blocks, files and roles that are sure to be included."""
    for task in tasks:
        if not conditional(task):
            read_task(reading, path, task)


def read_task(reading: Reading, path: Path, task: PlayEntry) -> None:
    """One task: where it runs, and what it includes."""
    target = str(task.get("delegate_to") or "")
    if "local_action" in task:
        refuse_local(reading, path, task, "local_action")
    elif task.get("connection") == "local":
        refuse_local(reading, path, task, "connection")
    elif target in BUILDER:
        refuse_local(reading, path, task, "delegate_to")
    elif target and "{{" not in target and target != reading.host:
        what = f"delegate_to: {target} is another machine, which a build cannot reach"
        reading.fault(path, task, "delegate_to", what, INSTEAD)
    for key in BLOCKS:
        read_tasks(reading, path, entries_of(task.get(key)))
    for short in (*TASK_FILES, *ROLES):
        included = task.get(short, task.get(f"ansible.builtin.{short}"))
        if isinstance(included, Mapping):
            included = included.get("name" if short in ROLES else "file")
        if not isinstance(included, str) or "{{" in included:
            continue
        if short in ROLES:
            read_role(reading, path, included)
        else:
            file = path.parent / included
            read_tasks(reading, file, reading.read_list(file))


def read_role(reading: Reading, path: Path, name: str) -> None:
    """The tasks and handlers of a role beside the playbook, or of the project."""
    places = (path.parent / "roles", reading.project / "roles", path.parent.parent.parent)
    for place in places:
        for kind in ("tasks", "handlers"):
            for file in ("main.yml", "main.yaml"):
                found = place / name / kind / file
                read_tasks(reading, found, reading.read_list(found))


def conditional(node: PlayEntry) -> bool:
    """Whether only Ansible can decide if this runs."""
    return "when" in node


def text_of(node: object, *keys: str) -> str:
    """The first of the keys that has a text without a template; "" for none."""
    values = [node.get(key) for key in keys] if isinstance(node, Mapping) else []
    texts = [value for value in values if isinstance(value, str) and "{{" not in value]
    return texts[0] if texts else ""
