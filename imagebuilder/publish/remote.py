# SPDX-License-Identifier: Apache-2.0
"""Publish into the tree of another machine over ssh: only what it lacks crosses the wire.

here                                         there (`imagebuilder receive`, see receive.py)
receive --have              ->               which commits its repository has
objects of the image, less those of the commits that both have
tar of bare objects | zstd  ->  ssh  ->      a scratch repository in work/
                                             ostree pull-local --untrusted: checksums
                                             publish(), as if the image were made there
                            <-               the release as JSON
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from imagebuilder import __version__
from imagebuilder.digest import Json
from imagebuilder.errors import Fault, HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.image.manifest import SCHEMA
from imagebuilder.process import Completed, check_tools, run
from imagebuilder.publish.channel import check_channel
from imagebuilder.publish.gate import check_reason
from imagebuilder.publish.wire import stream_objects
from imagebuilder.rootkind import Format
from imagebuilder.store.locks import held
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.ui import Ui, format_size

# Raised when what `receive` reads, writes or is called with changes.
PROTOCOL = 3
COMMAND = "imagebuilder"
URL_FORM = "write ssh://[user@]host[:port]/srv/netboot"
# How many commits of both sides are looked at: more hardly ever save another object.
MOST_BASES = 4
PREFIX = 16  # hexadecimal digits that tell one object from another
# One line of `ostree ls --recursive --checksum`: kind and mode, owner, group, size, checksums.
LINE = re.compile(r"([-ld])\d{5} +\d+ +\d+ +\d+ ([0-9a-f]{64})(?: ([0-9a-f]{64}))? /")
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
SSH_FAILED = 255  # ssh(1), EXIT STATUS
# What ssh says (part of it), and what to do.
SSH_HINTS = {
    "Permission denied": "nobody is asked for a password here: let the key of the user who runs "
    "this in with ssh-copy-id, or under sudo --preserve-env=SSH_AUTH_SOCK",
    "Host key verification failed": "connect once by hand with ssh and compare the host's key",
    "": "check name, address and port, and try it by hand with ssh",
}


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
    """What the other side has: refs with their commits, which are whole, and free bytes."""

    refs: Mapping[str, str]
    free: int


@dataclass(frozen=True)
class Sent:
    """What the other side says of the release, and bytes: sent, and of the whole image."""

    published: Mapping[str, Json]
    said: str
    sent: int
    whole: int

    def as_json(self) -> dict[str, Json]:
        """As a value for programs."""
        return {**self.published, "sent": self.sent, "whole": self.whole}

    def render(self) -> str:
        """As sentences."""
        sizes = f"sent {format_size(self.sent)} of {format_size(self.whole)}"
        return f"{self.said}\n{sizes}"


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
        raise InputError("names no folder for the tree", where=url, hint=URL_FORM)
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
) -> Sent:
    """Publish `image` of `store` into the tree of another machine.

    Raises HostError when it cannot be reached or is not fit, and what publish() raises there: for
    the channel stable the boot tests count that the other tree has.
    Whatever happens on the way, the other tree has the old state or the new one.
    """
    check_channel(channel)
    check_reason(untested)
    check_tools("ssh", "tar", "zstd")
    words = ["--channel", channel, *(f"--format={packed}" for packed in formats)]
    if untested:
        words.append(f"--untested={untested}")
    with held(store.path.parent / "locks" / "gc", shared=True):
        return send(remote, store, image, words, ui)


def send(remote: Remote, store: Store, image: ImageRef, options: Sequence[str], ui: Ui) -> Sent:
    """publish_to() while nothing is removed from the store; `options` are those of receive."""
    with ui.step(f"compare with {remote.host}"):
        have = ask_have(remote)
        objects = find_objects(store, [image.commit, find_root(store, image)])
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


def ask_have(remote: Remote) -> Have:
    """Ask the other side what it has.  Raises HostError when it is not fit."""
    answer = ask(remote, "--have")
    for name, ours in (("protocol", PROTOCOL), ("schema", SCHEMA)):
        if answer.get(name) != ours:
            raise HostError(
                f"has imagebuilder {answer.get('version')}, here is {__version__}: they do not "
                f"understand each other ({name} {answer.get(name)} and {ours})",
                where=remote.host,
                hint="install the same version on both machines",
            )
    refs, free = answer.get("refs"), answer.get("free")
    assert isinstance(refs, dict)
    assert isinstance(free, int)
    return Have(refs, free)


def ask(remote: Remote, *words: str) -> Mapping[str, Json]:
    """The JSON that `receive WORDS` answers.  Raises the error it ended with."""
    return parse_answer(remote, run(remote.ssh(*words), env=ssh_environment(), check=False))


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
        value = json.loads(done.stdout[done.stdout.index("{\n") :])
    except ValueError as error:
        raise HostError(
            "does not answer as imagebuilder does",
            where=remote.host,
            hint=f"what does `{shlex.join(remote.ssh('--have'))}` print?",
        ) from error
    assert isinstance(value, dict)
    return value


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
            hint="install this version of imagebuilder there, or say how it is run: "
            "--remote-command 'sudo /opt/imagebuilder/bin/imagebuilder'",
        )
    return told_failure(remote, done.status, lines, last)


def told_failure(remote: Remote, status: int, lines: Sequence[str], last: str) -> ImagebuilderError:
    """The error that imagebuilder over there ended with: its own words and kind."""
    kinds: dict[int, type[ImagebuilderError]] = {2: InputError, 3: HostError}
    kind = kinds.get(status, WorkError)
    texts = ("\n" + "\n".join(lines)).split("\nerror: ")[1:]
    faults = [read_fault(remote, text) for text in texts] or [Fault(remote.host, last, "")]
    error = kind(faults[0].what, where=faults[0].where, hint=faults[0].hint)
    error.faults = tuple(faults)
    return error


def read_fault(remote: Remote, text: str) -> Fault:
    """A fault as the other side printed it: what, and after `hint:` what next."""
    what, _, hint = text.partition("\nhint: ")
    return Fault(remote.host, what.rstrip(), hint.partition("\n")[0])


def find_root(store: Store, image: ImageRef) -> str:
    """The commit of an image's root."""
    root = store.manifest(image)["root"]
    assert isinstance(root, dict)
    return str(root["commit"])


def find_objects(store: Store, commits: Iterable[str]) -> frozenset[str]:
    """Every object of these commits, as its path below objects/."""
    found: set[str] = set()
    for commit in commits:
        found.add(object_path(commit, "commit"))
        for line in store.ostree("ls", "--recursive", "--checksum", commit).splitlines():
            # A line that does not look so is the rest of a file's name with a newline in it.
            if match := LINE.match(line):
                kind, first, second = match.groups()
                found.add(object_path(first, "dirtree" if kind == "d" else "file"))
                if second:
                    found.add(object_path(second, "dirmeta"))
    return frozenset(found)


def object_path(checksum: str, kind: str) -> str:
    """Where a bare repository has an object, below objects/."""
    return f"{checksum[:2]}/{checksum[2:]}.{kind}"


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
