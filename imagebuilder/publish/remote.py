# SPDX-License-Identifier: Apache-2.0
"""Publish into the tree of another machine over ssh: only what it lacks crosses the wire.

here                                         there (`imagebuilder receive`, see receive.py)
receive --have              ->               which commits its repository has, and which reports
objects of the image, less those of the commits that both have
tar of bare objects | zstd  ->  ssh  ->      a scratch repository in work/
                                             ostree pull-local --untrusted: checksums
                                             publish(), as if the image were made there
                            <-               the release as JSON
reports that it lacks       ->  receive --reports: those about the very bytes that are there
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from imagebuilder import __version__
from imagebuilder.decode import decode_box, parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import Fault, HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.image.types import SCHEMA, read_image
from imagebuilder.locks import held
from imagebuilder.process import Completed, check_tools, run
from imagebuilder.publish.carried import KeptReports, find_carried, pack_reports
from imagebuilder.publish.channel import check_channel
from imagebuilder.publish.find import ReleaseName
from imagebuilder.publish.gate import check_reason
from imagebuilder.publish.objects import list_objects, object_path
from imagebuilder.publish.standing import release_standing
from imagebuilder.publish.wire import stream_objects
from imagebuilder.report.standing import State
from imagebuilder.rootkind import Format
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import CANDIDATE, STABLE, Tree
from imagebuilder.ui import Ui, format_size

# Raised when what `receive` reads, writes or is called with changes.
PROTOCOL = 4
COMMAND = "imagebuilder"
URL_FORM = "write ssh://[user@]host[:port]/srv/netboot"
# How many commits of both sides are looked at: more hardly ever save another object.
MOST_BASES = 4
OTHER = "install the same version on both machines"
WHEEL = f"imagebuilder-{__version__}-py3-none-any.whl"
INSTALL = (
    f"copy {WHEEL} to it and run: sudo python3 -m venv --clear /opt/imagebuilder && "
    f"sudo /opt/imagebuilder/bin/pip install ./{WHEEL} && "
    "sudo ln -sf /opt/imagebuilder/bin/imagebuilder /usr/local/bin/imagebuilder"
)
PREFIX = 16  # hexadecimal digits that tell one object from another
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
SSH_FAILED = 255  # ssh(1), EXIT STATUS
# What ssh says (part of it), and what to do.
SSH_HINTS = {
    "Permission denied": "ssh cannot ask for a password here: authorize the key of the user who "
    "runs this with ssh-copy-id, or under sudo --preserve-env=SSH_AUTH_SOCK",
    "Host key verification failed": "connect once by hand with ssh and compare the host's key",
    "": "check name, address and port, and try it by hand with ssh",
}
SUDO_HINT = (
    "nobody can type a password there: log in as root (ssh://root@HOST/...), or let this user run "
    "imagebuilder through sudo without one (NOPASSWD in sudoers(5))"
)


@dataclass(frozen=True)
class Remote:
    """A tree on another machine: `host` as ssh takes it, `port` 0 for ssh's own choice.

    `command` is what runs imagebuilder there.
    """

    host: str
    port: int
    tree: str
    command: tuple[str, ...] = (COMMAND,)

    def ssh(self, *words: str) -> list[str]:
        """The command here that runs `receive WORDS` there; its shell sees quoted words."""
        port = ("-p", str(self.port)) if self.port else ()
        there = shlex.join([*self.command, "receive", "--tree", self.tree, *words])
        return ["ssh", *SSH_OPTIONS, *port, "--", self.host, there]


@dataclass(frozen=True)
class Have:
    """What the other side has: refs with their commits, which are whole, and free bytes.

    `reports` are the boot tests it has of the image's release, None if it lacks the release.
    """

    refs: Mapping[str, str]
    free: int
    reports: tuple[str, ...] | None


@dataclass(frozen=True)
class Sent:
    """What the other side says of the release, and bytes: sent, and of the whole image.

    `reports` are the boot tests that were sent with it.
    """

    published: Mapping[str, Json]
    said: str
    sent: int
    whole: int
    reports: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        """As a value for programs."""
        sizes: dict[str, Json] = {"sent": self.sent, "whole": self.whole}
        return {**self.published, **sizes, "reports": list(self.reports)}

    def render(self) -> str:
        """As sentences."""
        sizes = f"sent {format_size(self.sent)} of {format_size(self.whole)}"
        tests = f"\nsent boot test {', '.join(self.reports)}" if self.reports else ""
        return f"{self.said}\n{sizes}{tests}"


def parse_remote(url: str, command: str = "") -> Remote:
    """The tree that `url` names.  Raises InputError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError as error:
        raise InputError(str(error), where=url, hint=URL_FORM) from error
    tree, user = unquote(parts.path), parts.username or ""
    plain = all(
        re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*", word) for word in (host, user or "u")
    )
    if parts.scheme != "ssh" or not plain or parts.password or parts.query or parts.fragment:
        raise InputError("is not a place to publish to", where=url, hint=URL_FORM)
    if not tree.startswith("/") or tree.rstrip("/") == "" or "\n" in tree:
        raise InputError("does not name a folder for the tree", where=url, hint=URL_FORM)
    try:
        words = tuple(shlex.split(command)) or (COMMAND,)
    except ValueError as error:
        raise InputError(f"is not a command: {error}", where=command) from error
    return Remote(f"{user}@{host}" if user else host, port, tree.rstrip("/"), words)


def publish_to(
    remote: Remote,
    store: Store,
    image: ImageRef,
    ui: Ui,
    *,
    channel: str,
    formats: Sequence[Format] = (),
    untested: str = "",
    tested: Tree | None = None,
) -> Sent:
    """Publish `image` of `store` into the tree of another machine, with its boot tests in `tested`.

    Raises HostError when it cannot be reached or is not fit, and what publish() raises there: for
    the channel stable the boot tests count that the other tree has, or now gets.  A release that is
    new there and passed here is published as candidate first: a test counts for the bytes there.
    Whatever happens on the way, the other tree has the old state or the new one.
    """
    check_channel(channel)
    check_reason(untested)
    check_tools("ssh", "tar", "zstd")
    words = ["--channel", channel, *(f"--format={packed}" for packed in formats)]
    if untested:
        words.append(f"--untested={untested}")
    with held(store.path.parent / "locks" / "gc", shared=True):
        with ui.step(f"compare with {remote.host}"):
            have = ask_have(remote, image)
        # A release that is there may become stable by a report that comes now.
        before = have.reports is not None
        if channel == STABLE and not (before or untested) and has_passed(tested, image):
            first, second = (
                publish_to(remote, store, image, ui, channel=each, formats=formats, tested=tested)
                for each in (CANDIDATE, STABLE)
            )
            return replace(second, sent=first.sent, reports=first.reports)
        reports = send_reports(remote, tested, image, have, ui) if before else ()
        sent = send(remote, store, image, words, have, ui)
        if not before:
            reports = send_reports(remote, tested, image, have, ui)
        return replace(sent, reports=reports)


def has_passed(tested: Tree | None, image: ImageRef) -> bool:
    """Whether a boot test of the image's release has passed in this tree."""
    release = ReleaseName(image.profile, image.version)
    if tested is None or not tested.release(release.profile, release.version).is_dir():
        return False
    return release_standing(tested, release).state is State.PASSED


def send_reports(
    remote: Remote, tested: Tree | None, image: ImageRef, have: Have, ui: Ui
) -> tuple[str, ...]:
    """Send the boot tests that the other side lacks; the ids of those that it kept."""
    known = have.reports or ()
    found = find_carried(tested, image.profile, image.version, known) if tested else []
    if not found:
        return ()
    assert tested is not None
    with ui.step(f"send reports of {image.name}"):
        answer = ask(remote, "--reports", image.name, stdin=pack_reports(tested, found))
    told = decode_box(KeptReports, answer, remote.host, hint=OTHER)
    for why in told.refused:
        ui.warn(f"{remote.host}: {why}")
    return told.kept


def send(
    remote: Remote, store: Store, image: ImageRef, options: Sequence[str], have: Have, ui: Ui
) -> Sent:
    """publish_to() while nothing is removed from the store; `options` are those of receive."""
    with ui.step(f"list what {remote.host} lacks"):
        objects = find_objects(store, [image.commit, read_image(store, image).root.commit])
        lacking = find_lacking(remote, store, image, objects, have)
        sizes = {name: size_on_disk(store.path / "objects" / name) for name in objects}
    needed = sum(sizes[name] for name in lacking)
    if needed > have.free:
        raise HostError(
            f"not enough space: {format_size(needed)} are needed, {format_size(have.free)} free",
            where=f"{remote.host}:{remote.tree}",
            hint="run imagebuilder gc --releases there",
        )
    argv = remote.ssh(image.name, image.commit, *options)
    sent, done = stream_objects(store.path / "objects", lacking, argv, ssh_environment(), ui)
    answer = parse_answer(remote, done)
    published = answer["published"]
    assert isinstance(published, dict)
    return Sent(published, str(answer["said"]), sent, sum(sizes.values()))


def size_on_disk(path: Path) -> int:
    """Bytes of a file that are not holes."""
    found = path.lstat()
    return min(found.st_size, found.st_blocks * 512)


def ask_have(remote: Remote, image: ImageRef) -> Have:
    """Ask the other side what it has.  Raises HostError when it is not fit."""
    answer = ask(remote, "--have", image.name)
    for name, ours in (("version", __version__), ("protocol", PROTOCOL), ("schema", SCHEMA)):
        if (theirs := answer.get(name)) != ours:
            raise HostError(
                f"has imagebuilder {answer.get('version')}, this machine has {__version__}"
                f"{'' if name == 'version' else f' ({name} {theirs} and {ours})'}: publishing "
                "needs the same version on both",
                where=remote.host,
                hint=f"to install {__version__} there: {INSTALL}",
            )
    known = {name: answer.get(name) for name in ("refs", "free", "reports")}
    return decode_box(Have, known, remote.host, hint=OTHER)


def ask(remote: Remote, *words: str, stdin: bytes | None = None) -> Mapping[str, Json]:
    """The JSON that `receive WORDS` answers.  Raises the error it ended with."""
    done = run(remote.ssh(*words), env=ssh_environment(), stdin=stdin, check=False)
    return parse_answer(remote, done)


def ssh_environment() -> dict[str, str]:
    """What ssh sees besides: the person's agent."""
    return {name: os.environ[name] for name in ("SSH_AUTH_SOCK",) if name in os.environ}


def parse_answer(remote: Remote, done: Completed) -> Mapping[str, Json]:
    """The JSON of an answer; what a login script of the host printed before it does not count.

    Raises the error the other side ended with.
    """
    if done.status != 0:
        raise remote_failure(remote, done)
    try:
        return parse_object(done.stdout[done.stdout.index("{\n") :], remote.host)
    except (ValueError, InputError) as error:
        raise HostError(
            "does not answer as imagebuilder does",
            where=remote.host,
            hint=f"what does `{shlex.join(remote.ssh('--have'))}` print?",
        ) from error


def remote_failure(remote: Remote, done: Completed) -> ImagebuilderError:
    """The error for what ended badly over there, or on the way."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    if done.status == SSH_FAILED:
        hint = next(hint for part, hint in SSH_HINTS.items() if part in done.stderr)
        return HostError(f"ssh failed: {last}", where=remote.host, hint=hint)
    if done.status < 0:
        return WorkError(f"ssh was killed by signal {-done.status}", where=remote.host)
    program = shlex.join(remote.command)
    if done.status in (126, 127) or "No such command" in done.stderr:
        return HostError(
            f"cannot run `{program} receive`: {last}",
            where=remote.host,
            hint=f"install imagebuilder {__version__} there: {INSTALL}; if it is installed "
            "elsewhere: --remote-command /the/path/of/imagebuilder",
        )
    return told_failure(remote, done.status, lines, last)


def told_failure(remote: Remote, status: int, lines: Sequence[str], last: str) -> ImagebuilderError:
    """The error that imagebuilder over there ended with: its own words and kind."""
    kinds: dict[int, type[ImagebuilderError]] = {2: InputError, 3: HostError}
    kind = kinds.get(status, WorkError)
    texts = ("\n" + "\n".join(lines)).split("\nerror: ")[1:]
    hint = SUDO_HINT if last.startswith("sudo:") else ""
    faults = [read_fault(remote, text) for text in texts] or [Fault(remote.host, last, hint)]
    error = kind(faults[0].what, where=faults[0].where, hint=faults[0].hint)
    error.faults = tuple(faults)
    return error


def read_fault(remote: Remote, text: str) -> Fault:
    """A fault as the other side printed it: what, and after `hint:` what next."""
    what, _, hint = text.partition("\nhint: ")
    return Fault(remote.host, what.rstrip(), hint.partition("\n")[0])


def find_objects(store: Store, commits: Iterable[str]) -> frozenset[str]:
    """Every object of these commits, as its path below objects/."""
    return frozenset().union(*(list_objects(store.path, commit) for commit in commits))


def find_lacking(
    remote: Remote, store: Store, image: ImageRef, objects: frozenset[str], have: Have
) -> tuple[str, ...]:
    """Those of `objects` that the other side lacks, sorted.

    What the commits of both sides consist of is there.  Without such a commit, because this store
    has pruned what was published before, the names of all objects there are asked for.
    """
    bases = [
        commit
        for commit in order_bases(have.refs, image.profile)
        if (store.path / "objects" / object_path(commit, "commit")).is_file()
    ]
    if bases:
        return tuple(sorted(objects - find_objects(store, bases[:MOST_BASES])))
    if not have.refs:
        return tuple(sorted(objects))
    listed = ask(remote, "--have", "--objects").get("objects")
    there = frozenset(listed) if isinstance(listed, list) else frozenset()
    return tuple(sorted(n for n in objects if n.replace("/", "", 1)[:PREFIX] not in there))


def order_bases(refs: Mapping[str, str], profile: str) -> list[str]:
    """The commits of KIND/PROFILE/VERSION refs, likely bases first: this profile's, newest first.

    Versions begin with their time.
    """
    named = sorted((ref.rpartition("/"), commit) for ref, commit in refs.items())
    newest = sorted(named, key=lambda found: found[0][2], reverse=True)
    newest.sort(key=lambda found: not found[0][0].endswith(f"/{profile}"))
    return list(dict.fromkeys(commit for _, commit in newest))
