# SPDX-License-Identifier: Apache-2.0
"""Commit lock files, and nothing else, to git as the owner of the checkout."""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError, WorkError
from imagebuilder.lock.changes import counted, render_change
from imagebuilder.nightly.types import ProfileRun
from imagebuilder.process import Completed, Word, run, shorten
from imagebuilder.ui import format_count

# Operations in progress, by the files that git keeps for them: a commit would become part of them.
UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisection",
}
TITLE_WIDTH = 72
MOST = 200  # lines a profile


@dataclass(frozen=True)
class Checkout:
    """A git checkout; commands run in `folder` as its owner, which git requires."""

    folder: Path

    def git(self, *words: Word, check: bool = True) -> Completed:
        """Run git.  Raises WorkError if it fails, HostError if it is not installed."""
        done = self._run(words)
        if check and done.status != 0:
            raise failure_of(done)
        return done

    def _run(self, words: Sequence[Word]) -> Completed:
        """Run git, which is told to end if we are killed: killed too, it would leave its locks."""
        owner = self.folder.stat()
        if os.geteuid() != 0 or owner.st_uid == 0:
            return run(["git", *words], cwd=self.folder, ask=ask_nothing, check=False)
        become = ["setpriv", "--reuid", str(owner.st_uid), "--regid", str(owner.st_gid)]
        try:
            home, groups = pwd.getpwuid(owner.st_uid).pw_dir, "--init-groups"
        except KeyError:  # the owner has no name, for instance on a volume
            home, groups = os.fspath(self.folder), "--clear-groups"
        argv = [*become, groups, "--", "git", *words]
        return run(argv, cwd=self.folder, env={"HOME": home}, ask=ask_nothing, check=False)


def ask_nothing() -> None:
    """Nothing ends git early."""


def failure_of(done: Completed) -> WorkError:
    """What git says: its fault (behind some is advice of many lines), or what a hook said last."""
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    faults = [line for line in lines if line.startswith("fatal: ")]
    how = f"signal {-done.status}" if done.status < 0 else f"exit status {done.status}"
    said = (faults or lines[-1:] or ["it gave no reason"])[0]
    return WorkError(f"git failed ({how}): {shorten(said)}")


def commit_locks(locks: Path, profiles: Sequence[ProfileRun]) -> str:
    """Commit the lock files of `profiles` in the folder `locks`; returns the commit or "".

    Other changes of the checkout, even staged ones, stay as they are.  Raises HostError if the
    folder is no checkout or a git operation is in progress, WorkError if git fails; the lock files
    are then unchanged, and not staged.
    """
    checkout = find_checkout(locks)
    check_idle(checkout)
    paths = [f"{profile.profile}.lock" for profile in profiles]
    said = checkout.git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--", *paths)
    changed = dict(parse_status(said.stdout))
    if ignored := find_ignored(checkout, paths):
        raise HostError(
            "is ignored by git",
            where=os.fspath(locks / ignored),
            hint="remove it from .gitignore: a lock is an input of the build",
        )
    prefix = checkout.git("rev-parse", "--show-prefix").stdout.strip()
    mine = [name for name in paths if f"{prefix}{name}" in changed]
    if not mine:
        return ""
    # A run that was killed may have staged the file as it is.
    staged = [name for name in mine if is_staged_otherwise(changed[f"{prefix}{name}"])]
    if staged:
        raise HostError(
            "has staged changes that differ from the file",
            where=os.fspath(locks / staged[0]),
            hint="commit them or run git restore --staged; the next nightly run commits the file",
        )
    about = [profile for profile in profiles if f"{profile.profile}.lock" in mine]
    return commit_files(checkout, mine, render_message(about))


def find_checkout(locks: Path) -> Checkout:
    """The checkout that the lock files are in.  Raises HostError."""
    checkout = Checkout(locks)
    said = checkout.git("rev-parse", "--is-inside-work-tree", check=False)
    if said.status != 0 or said.stdout.strip() != "true":
        raise HostError(
            "is not in a git checkout",
            where=os.fspath(locks),
            hint="run git init there and commit the files, or leave out --commit",
        )
    return checkout


def check_idle(checkout: Checkout) -> None:
    """Raise HostError if a git operation is in progress."""
    folder = Path(checkout.git("rev-parse", "--absolute-git-dir").stdout.strip())
    for name, what in UNDER_WAY.items():
        if (folder / name).exists():
            raise HostError(
                f"{what} is in progress in this checkout",
                where=os.fspath(folder),
                hint="finish it; the next nightly run commits the changed locks",
            )


def find_ignored(checkout: Checkout, paths: Sequence[str]) -> str:
    """The first of these files that git ignores, "" for none; git never ignores tracked files."""
    said = checkout.git("check-ignore", "--", *paths, check=False)
    return said.stdout.partition("\n")[0]


def parse_status(said: str) -> Iterator[tuple[str, str]]:
    """The path and the two letters of every entry (git-status(1), porcelain format 1)."""
    entries = iter(said.split("\0"))
    for entry in entries:
        if not entry:
            continue
        letters, path = entry[:2], entry[3:]
        if "R" in letters or "C" in letters:
            next(entries, None)  # its old name
        yield path, letters


def is_staged_otherwise(letters: str) -> bool:
    """Whether the staged file is neither what is committed nor what is on disk."""
    return letters[0] not in " ?" and letters[1] != " "


def commit_files(checkout: Checkout, names: Sequence[str], message: str) -> str:
    """Commit these files as they are on disk, without other staged files."""
    new = checkout.git("ls-files", "--others", "-z", "--", *names).stdout.split("\0")
    fresh = [name for name in new if name]
    if fresh:
        checkout.git("add", "--", *fresh)
    try:
        checkout.git(*author(checkout), "commit", "--quiet", f"--message={message}",
                     "--only", "--", *names)  # fmt: skip
    except WorkError:
        if fresh:
            checkout.git("rm", "--cached", "--quiet", "--", *fresh, check=False)
        raise
    return checkout.git("rev-parse", "HEAD").stdout.strip()


def author(checkout: Checkout) -> tuple[str, ...]:
    """Options that name the author, unless git's configuration does."""
    said = checkout.git("config", "user.email", check=False)
    if said.status == 0 and said.stdout.strip():
        return ()
    return (
        "-c", "user.name=imagebuilder nightly",
        "-c", f"user.email=imagebuilder@{platform.node() or 'localhost'}",
    )  # fmt: skip


def render_message(profiles: Sequence[ProfileRun]) -> str:
    """A subject, and the changes by profile; security updates come first."""
    names = ", ".join(profile.profile for profile in profiles)
    security = len({c.name for profile in profiles for c in profile.changes if c.security})
    subject = f"locks: Refresh {names}"
    if len(subject) > TITLE_WIDTH:
        subject = f"locks: Refresh {format_count(len(profiles), 'profile')}"
    if security:
        subject += f" ({security} security)"
    parts = [subject, *(render_changes(profile) for profile in profiles)]
    return "\n\n".join(parts) + "\n"


def render_changes(profile: ProfileRun) -> str:
    """One profile: its image, and one line per package."""
    lines = [f"  {render_change(change)}" for change in profile.changes]
    if len(lines) > MOST:
        lines = [*lines[:MOST], f"  and {len(lines) - MOST} more"]
    tested = f"; boot test {profile.report}" if profile.report else ""
    what = counted(profile.changes)
    return "\n".join([f"{profile.profile}@{profile.version}: {what}{tested}", *lines])
