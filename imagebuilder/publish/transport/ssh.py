# SPDX-License-Identifier: Apache-2.0
"""Publish into the tree of another machine over ssh: sends only what it lacks.

here                                         there (`imagebuilder receive`, see local.py)
receive --have              ->               which commits its repository has, and which reports
objects of the image, less those of the commits that both have
tar of bare objects | zstd  ->  ssh  ->      a temporary repository in work/
                                             verify every checksum, then ostree pull-local
                                             publish(), as if the image were made there
                            <-               the release as JSON
reports that it lacks       ->  receive --reports: those of exactly the bytes that are there
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from imagebuilder import __version__
from imagebuilder.decode import MAX_BYTES, decode_box, parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import Fault, HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.image.types import MANIFEST
from imagebuilder.process import Completed, ExcessError, check_tools, paste, run
from imagebuilder.publish.transport.local import PROTOCOL
from imagebuilder.publish.transport.protocol import Activated, Order, PlaceContents
from imagebuilder.publish.transport.reports import KeptReports
from imagebuilder.publish.transport.stream import StuckError, stream_objects
from imagebuilder.ssh import (
    HOST_OPTIONS,
    SSH_FAILED,
    find_hint,
    option_words,
    ssh_environment,
)
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.ui import Ui, format_count
from imagebuilder.untrusted import MOST_LONG, MOST_REQUEST, clean, fit

COMMAND = "imagebuilder"
OTHER = "install the same version on both machines"
WHEEL = f"imagebuilder-{__version__}-py3-none-any.whl"
INSTALL = (
    f"copy {WHEEL} to it and run: sudo python3 -m venv --clear /opt/imagebuilder && "
    f"sudo /opt/imagebuilder/bin/pip install ./{WHEEL} && "
    "sudo ln -sf /opt/imagebuilder/bin/imagebuilder /usr/local/bin/imagebuilder"
)
MOST_SAID = MAX_BYTES + MOST_REQUEST  # bytes: an answer, and a greeting before it
ANSWER_S = 600.0  # for a question, and for reports: who removes releases there is waited for
MOST_LINES = 50  # of what it says of a release: one for each device that no proof looked at
AGAIN = "publish again: it sends what is missing there"
BROKEN = f"the connection broke, or what ran there was killed: {AGAIN}"
STUCK = "see what is running there, and publish again; a waiting publish blocks removals here"
SUDO_HINT = (
    "sudo cannot ask for a password there: log in as root (ssh://root@HOST/...), or let this user "
    "run imagebuilder through sudo without a password (NOPASSWD in sudoers(5))"
)


@dataclass(frozen=True)
class Remote:
    """A tree on another machine: `host` as ssh takes it, `port` 0 for ssh's default.

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
        return ["ssh", *option_words(HOST_OPTIONS), *port, "--", self.host, there]

    @property
    def name(self) -> str:
        return self.host

    @property
    def where(self) -> str:
        return f"{self.host}:{self.tree}"

    @property
    def keeps_reports(self) -> bool:
        return True

    def check(self) -> None:
        """Raise HostError when a tool is missing here."""
        check_tools("ssh", "tar", "zstd")

    def list(self, image: ImageRef) -> PlaceContents:
        """Ask the other side what it has.  Raises HostError if it runs another version."""
        answer = ask(self, "--have", image.name)
        for name, ours in (
            ("version", __version__),
            ("protocol", PROTOCOL),
            ("schema", MANIFEST.schema),
        ):
            if (theirs := answer.get(name)) != ours:
                version = fit(str(answer.get("version")))
                more = "" if name == "version" else f" ({name} {fit(str(theirs))} and {ours})"
                raise HostError(
                    f"has imagebuilder {version}, this machine has {__version__}{more}: publishing "
                    "needs the same version on both",
                    where=self.host,
                    hint=f"to install {__version__} there: {INSTALL}",
                )
        return decode_box(PlaceContents, answer, self.host, hint=OTHER)

    def have(self) -> frozenset[str]:
        """Ask the other side for the start of the name of every object."""
        listed = ask(self, "--have", "--objects").get("objects")
        return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()

    @contextmanager
    def arrival(self, image: ImageRef, order: Order, ui: Ui) -> Iterator[SshArrival]:
        """One process over there, which ends with its stdin and does all or nothing."""
        words = ["--channel", order.channel, *(f"--format={packed}" for packed in order.formats)]
        if order.untested:
            words.append(f"--untested={order.untested}")
        yield SshArrival(self, self.ssh(image.name, image.commit, *words), ui)

    def add_reports(self, image: ImageRef, lines: bytes, ui: Ui) -> KeptReports:
        """Send boot tests; the other side says which ones it kept."""
        del ui
        answer = ask(self, "--reports", image.name, stdin=lines)
        return decode_box(KeptReports, answer, self.host, hint=OTHER)


class SshArrival:
    """An image that `receive` over there takes, verifies and publishes in one transaction."""

    def __init__(self, remote: Remote, argv: Sequence[str], ui: Ui) -> None:
        self.remote, self.argv, self.ui = remote, argv, ui
        self.answer: Mapping[str, Json] = {}

    def send(self, source: Store, objects: Sequence[str]) -> int:
        """Stream the objects and read the answer of `receive`.  Raises the error it ended with."""
        folder = source.path / "objects"
        try:
            sent, done = stream_objects(folder, objects, self.argv, ssh_environment(), self.ui)
        except StuckError as error:
            raise HostError(str(error), where=self.remote.host, hint=STUCK) from error
        self.answer = parse_answer(self.remote, done)
        return sent

    def verify(self) -> None:
        """Nothing to do: `receive` has verified the objects before it answered."""

    def activate(self) -> Activated:
        """What `receive` answered about the release: each of its lines names who said it."""
        told = decode_box(Activated, self.answer, self.remote.host, hint=OTHER)
        lines = told.said.splitlines()
        if (more := len(lines) - MOST_LINES) > 0:
            lines[MOST_LINES:] = [f"… and {format_count(more, 'more line')}"]
        return replace(told, said="\n".join(f"{self.remote.host}: {line}" for line in lines))


def parse_remote(url: str, command: str = "") -> Remote:
    """The tree that an ssh:// URL names.  Raises InputError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError as error:
        raise InputError(str(error), where=url) from error
    tree, user = unquote(parts.path), parts.username or ""
    plain = all(
        re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*", word) for word in (host, user or "u")
    )
    if parts.scheme != "ssh" or not plain or parts.password or parts.query or parts.fragment:
        raise InputError("is not a valid place to publish to", where=url)
    if not tree.startswith("/") or tree.rstrip("/") == "" or not tree.isprintable():
        raise InputError("does not name a folder for the tree", where=url)
    try:
        words = tuple(shlex.split(command)) or (COMMAND,)
    except ValueError as error:
        raise InputError(f"is not a command: {error}", where=command) from error
    return Remote(f"{user}@{host}" if user else host, port, tree.rstrip("/"), words)


def ask(remote: Remote, *words: str, stdin: bytes | None = None) -> Mapping[str, Json]:
    """The JSON that `receive WORDS` answers in time.  Raises the error it ended with."""
    words, env = tuple(remote.ssh(*words)), ssh_environment()
    try:
        done = run(words, env=env, stdin=stdin, seconds=ANSWER_S, most=MOST_SAID, check=False)
    except ExcessError as error:
        what = f"answered more than {MOST_SAID >> 20} MiB"
        raise HostError(
            what, where=remote.host, hint=f"see what `{paste(words)}` prints"
        ) from error
    if done.late:
        what = f"did not answer within {ANSWER_S:g} s"
        raise HostError(what, where=remote.host, hint=STUCK)
    return parse_answer(remote, done)


def parse_answer(remote: Remote, done: Completed) -> Mapping[str, Json]:
    """The JSON of an answer, without what a login script of the host printed before it.

    Raises the error the other side ended with.
    """
    if done.status != 0:
        raise remote_failure(remote, done)
    try:
        return parse_object(done.stdout[done.stdout.index("{\n") :], remote.host)
    except (ValueError, InputError) as error:
        raise HostError(
            "did not give an answer of imagebuilder, or not all of it",
            where=remote.host,
            hint=f"{AGAIN}; if that does not help, see what "
            f"`{shlex.join(remote.ssh('--have'))}` prints",
        ) from error


def remote_failure(remote: Remote, done: Completed) -> ImagebuilderError:
    """The error for a failure of the other side, or of the connection."""
    said = done.stderr[-MOST_REQUEST:].splitlines()
    lines = [clean(line.strip(), MOST_LONG) for line in said if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    if done.status == SSH_FAILED:
        hint = find_hint(done.stderr) if lines else BROKEN
        return HostError(f"ssh failed: {last}", where=remote.host, hint=hint)
    if done.status < 0:
        return WorkError(f"ssh was killed by signal {-done.status}", where=remote.host)
    program = shlex.join(remote.command)
    if done.status in (126, 127) or "No such command" in done.stderr:
        return HostError(
            f"cannot run `{program} receive`: {last}",
            where=remote.host,
            hint=f"install imagebuilder {__version__} there: {INSTALL}; if it is installed "
            "elsewhere, use --remote-command /the/path/of/imagebuilder",
        )
    return reported_failure(remote, done.status, lines, last)


def reported_failure(
    remote: Remote, status: int, lines: Sequence[str], last: str
) -> ImagebuilderError:
    """The error that imagebuilder over there ended with, with its text and kind."""
    kinds: dict[int, type[ImagebuilderError]] = {2: InputError, 3: HostError}
    kind = kinds.get(status, WorkError)
    texts = ("\n" + "\n".join(lines)).split("\nerror: ")[1:]
    hint = SUDO_HINT if last.startswith("sudo:") else ""
    faults = [read_fault(remote, text) for text in texts] or [Fault(remote.host, last, hint)]
    return kind.of(faults)


def read_fault(remote: Remote, text: str) -> Fault:
    """Parse a fault that the other side printed: what, and after `hint:` what next."""
    what, _, hint = text.partition("\nhint: ")
    return Fault(remote.host, what.rstrip(), hint.partition("\n")[0])
