# SPDX-License-Identifier: Apache-2.0
"""The files an overlay puts into the root: files/ as it lands, `X.j2` rendered to X."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from errno import EOVERFLOW
from pathlib import Path

from imagebuilder.digest import digest_of_bytes, digest_of_file
from imagebuilder.errors import Fault, one_line
from imagebuilder.files import read_plain
from imagebuilder.folders import entries_below
from imagebuilder.limited import MOST_MAPPED
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.model import FileRule
from imagebuilder.recipe.render import Scope, TemplateProblem, Unknown
from imagebuilder.recipe.rules import Rule
from imagebuilder.recipe.types import TreeFile

TEMPLATE_SUFFIX = ".j2"
MOST_TEMPLATE = 4 << 20  # bytes; what is rendered of it has a limit of its own
# Mounted or emptied when the node boots: what lands there is never seen.
NOT_IN_A_ROOT = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/run", "/var/lock")
# Symlinks into /usr on a merged-usr root: a file there would replace or break the link.
MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
KINDS = (
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)


@dataclass(frozen=True)
class FoundFile:
    """An entry below files/: where it is, its path in the root as written, and lstat(2)'s mode."""

    path: Path
    target: str
    mode: int

    @property
    def is_template(self) -> bool:
        name = posixpath.basename(self.target)
        return stat.S_ISREG(self.mode) and name.endswith(TEMPLATE_SUFFIX) and name != ".j2"

    @property
    def lands(self) -> str:
        return self.target.removesuffix(TEMPLATE_SUFFIX) if self.is_template else self.target


def load_tree(
    scope: Scope, overlay: Path, shown: str, rules: Mapping[str, FileRule], owner_rule: Rule
) -> tuple[TreeFile, ...]:
    """The files of the overlay in the folder `overlay`, called `shown`, sorted by target."""
    folder = overlay / "files"
    if folder.is_symlink():
        scope.faults.append(Fault(f"{shown}/files", "must be a folder, not a symlink"))
        return ()
    found = [
        FoundFile(
            Path(entry.path),
            entry.path[len(os.fspath(folder)) :],
            entry.stat(follow_symlinks=False).st_mode,
        )
        for entry in (entries_below(folder) if folder.is_dir() else ())
        if not entry.is_dir(follow_symlinks=False)
    ]
    sound = [entry for entry in found if check_found(entry, shown, scope.faults)]
    landed = {entry.lands for entry in found}
    for target, rule in rules.items():
        check_rule(scope, target, rule, landed)
    check_twins(sound, shown, scope.faults)
    default = FileRule()
    loaded = (
        load_file(scope, entry, shown, rules.get(entry.lands, default), owner_rule)
        for entry in sound
    )
    return tuple(sorted((file for file in loaded if file), key=lambda file: file.target))


def check_found(found: FoundFile, shown: str, faults: list[Fault]) -> bool:
    """Whether an entry may go into a root; the reason why not is added to `faults`."""
    where = f"{shown}/files{one_line(found.target)}"
    if one_line(found.target) != found.target:
        faults.append(Fault(where, "the name has control characters or is not UTF-8"))
        return False
    if problem := kind_problem(found) or target_problem(found.lands):
        faults.append(Fault(where, *problem))
        return False
    return True


def kind_problem(found: FoundFile) -> tuple[str, str] | None:
    """What and hint if an overlay cannot contain this kind of file."""
    for is_kind, name in KINDS:
        if is_kind(found.mode):
            return f"is {name}", "an overlay can contain only files, folders and symlinks"
    if stat.S_ISLNK(found.mode):
        return link_problem(found.target, str(found.path.readlink()))
    if found.mode & (stat.S_ISUID | stat.S_ISGID):
        return "is setuid or setgid", "install it from a package"
    return None


def link_problem(target: str, link: str) -> tuple[str, str] | None:
    """What and hint if a symlink could lead out of the root."""
    folder = posixpath.dirname(target)
    if one_line(link) != link:
        return "the symlink's target has control characters or is not UTF-8", ""
    if link.startswith("/"):
        relative = posixpath.relpath(link, folder)
        return f"is a symlink to the absolute path {quote(link)}", f"write it as {quote(relative)}"
    depth = folder.count("/") if folder != "/" else 0
    for part in link.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return f"is a symlink that leaves the root: {quote(link)}", ""
    return None


def target_problem(target: str) -> tuple[str, str] | None:
    """What and hint if nothing may be put at `target` in a root."""
    for folder in NOT_IN_A_ROOT:
        if is_below(target, folder):
            return f"{folder} is not part of a root", "it is mounted or emptied when a node boots"
    for folder in MERGED:
        if is_below(target, folder):
            return f"{folder} is a symlink into /usr", f"use {quote('/usr' + target)}"
    return None


def is_below(target: str, folder: str) -> bool:
    return target == folder or target.startswith(f"{folder}/")


def check_rule(scope: Scope, target: str, rule: FileRule, landed: set[str]) -> None:
    """A rule must name a file that lands, and may not make it setuid."""
    path = ("files", target)
    if target not in landed:
        hint = suggest(target, landed, closest=True)
        fault = scope.document.fault(path, "files/ has no file with this path", hint, of_key=True)
        scope.faults.append(fault)
    if rule.mode and int(rule.mode, 8) & 0o6000:
        what = "setuid and setgid are not allowed"
        scope.fault((*path, "mode"), what, "install it from a package")


def check_twins(found: list[FoundFile], shown: str, faults: list[Fault]) -> None:
    """`X` and `X.j2` cannot both exist."""
    plain = {entry.target for entry in found if not entry.is_template}
    for entry in found:
        if entry.is_template and entry.lands in plain:
            where = f"{shown}/files{entry.target}"
            what = f"is rendered to {entry.lands}, which files/ also contains"
            faults.append(Fault(where, what, "keep one of them"))


def load_file(
    scope: Scope, found: FoundFile, shown: str, rule: FileRule, owner_rule: Rule
) -> TreeFile | None:
    """One file as it lands; None if its rule leaves it out or it is invalid."""
    path = ("files", found.lands)
    if not scope.holds((*path, "when"), rule.when):
        return None
    owner = scope.text((*path, "owner"), rule.owner, owner_rule)
    group = scope.text((*path, "group"), rule.group, owner_rule)
    if owner is None or group is None:
        return None
    if stat.S_ISLNK(found.mode):
        link = os.fspath(found.path.readlink())
        digest = digest_of_bytes(link.encode())
        return TreeFile(found.lands, digest, 0o777, owner, group, link=link)
    mode = int(rule.mode, 8) if rule.mode else 0o755 if found.mode & stat.S_IXUSR else 0o644
    try:
        if not found.is_template:
            check_size(found.path)
            digest = digest_of_file(found.path)
            return TreeFile(found.lands, digest, mode, owner, group, source=found.path)
        content = render_file(scope, found, shown)
    except OSError as error:
        where = f"{shown}/files{found.target}"
        scope.faults.append(Fault(where, f"cannot be read: {error.strerror}"))
        return None
    if content is None:
        return None
    return TreeFile(found.lands, digest_of_bytes(content), mode, owner, group, content=content)


def check_size(path: Path) -> None:
    """Raise OSError for a file that would take hours to read: one of nothing takes no place."""
    if (size := path.lstat().st_size) > MOST_MAPPED:
        said = f"It has {size >> 30} GiB, but the limit is {MOST_MAPPED >> 30} GiB"
        raise OSError(EOVERFLOW, said)


def render_file(scope: Scope, found: FoundFile, shown: str) -> bytes | None:
    """The rendered template; None if it is invalid.  Raises OSError."""
    where = f"{shown}/files{found.target}"
    try:
        return scope.renderer.text(read_plain(found.path, MOST_TEMPLATE).decode()).encode()
    except UnicodeDecodeError:
        hint = "name it without .j2 if it is not a template"
        scope.faults.append(Fault(where, "is not UTF-8 text", hint))
    except TemplateProblem as problem:
        scope.faults.append(Fault(f"{where}:{problem.line}", problem.what, problem.hint))
    except Unknown:
        pass
    return None
