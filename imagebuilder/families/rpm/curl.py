# SPDX-License-Identifier: Apache-2.0
"""Fetch files with curl(1), many in one process; addresses never become arguments."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import FullError, WorkError
from imagebuilder.families.addresses import split_login, split_uri
from imagebuilder.process import failure, run
from imagebuilder.untrusted import fit

AT_ONCE = 4
# As long as other package managers wait for an answer, and as often as they try.
CONNECT_S, SILENT_S, TRIES = 30, 60, 3
# "EXIT CODES" of curl(1).
WRITE_ERROR, HTTP_ERROR, PARTIAL, NO_FILE = 23, 22, 18, 37
CANNOT_RESUME = (33, 36)  # no ranges, or none from there
CUT_OFF = (PARTIAL, 52, 55, 56, 92)  # closed, reset
TOO_LARGE = 63
# Statuses of HTTP (RFC 9110, 15.5).
GONE, NO_RANGE, SERVER_ERROR = (404, 410), 416, 500
# index, exit code, status, message.
SAID = re.compile(r"(\d+) (\d+) (\d+) ?(.*)")


@dataclass(frozen=True)
class Transfer:
    """A file to fetch: an address, possibly with a login, and a path.

    It has at most `size` bytes; None if nobody knows.  With `resume`, a partial file is continued.
    """

    uri: str
    path: Path
    size: int | None = None
    resume: bool = False

    @property
    def shown(self) -> str:
        """The address without its login."""
        return split_login(self.uri)[0]


@dataclass(frozen=True)
class TransferFault:
    """Why a file did not arrive: curl's exit code, the status of HTTP (0: none), and its words."""

    code: int
    status: int
    words: str

    @property
    def is_gone(self) -> bool:
        """Whether the server answered, and has no such file."""
        return self.code == NO_FILE or (self.code == HTTP_ERROR and self.status in GONE)

    @property
    def is_full(self) -> bool:
        return self.code == WRITE_ERROR

    @property
    def is_cut_off(self) -> bool:
        """Whether the server began to send, or could have, and closed the connection."""
        return self.code in CUT_OFF

    @property
    def is_unresumable(self) -> bool:
        """Whether only a whole file can be had."""
        return self.code in CANNOT_RESUME or (self.code, self.status) == (HTTP_ERROR, NO_RANGE)

    @property
    def may_pass(self) -> bool:
        """Whether the next attempt may succeed: no attempt costs much time."""
        passing = self.is_cut_off or self.is_unresumable
        return passing or (self.code == HTTP_ERROR and self.status >= SERVER_ERROR)

    @property
    def is_too_large(self) -> bool:
        return self.code == TOO_LARGE

    def __str__(self) -> str:
        return f"curl: ({self.code}) {self.words}"


def fetch_files(
    transfers: Sequence[Transfer], ask: Callable[[], None] | None = None, at_once: int = AT_ONCE
) -> Mapping[Path, TransferFault]:
    """Fetch files; returns the faults by path, and leaves partial files.

    `ask` is called over and over and may raise.  Raises HostError if curl is not installed,
    FullError if a file may not be so large, and WorkError if it ends without a word about a file.
    """
    faults: dict[Path, TransferFault] = {}
    wanted = list(transfers)
    for _ in range(TRIES):
        tried = fetch_once(wanted, ask, at_once)
        for path, fault in tried.items():
            if fault.is_unresumable:
                path.unlink(missing_ok=True)
        faults = {path: fault for path, fault in faults.items() if not fault.may_pass} | tried
        wanted = [each for each in wanted if each.path in tried and tried[each.path].may_pass]
    return faults


def fetch_once(
    transfers: Sequence[Transfer], ask: Callable[[], None] | None, at_once: int
) -> dict[Path, TransferFault]:
    """The same, with one attempt."""
    if not transfers:
        return {}
    command = ["curl", "--disable", "--config", "-"]
    config = render_config(transfers, at_once)
    done = run(command, stdin=config.encode(), ask=ask, check=False)
    found = [match for line in done.stdout.splitlines() if (match := SAID.fullmatch(line))]
    faults = {
        int(match[1]): TransferFault(int(match[2]), int(match[3]), fit(match[4])) for match in found
    }
    if done.status == -signal.SIGXFSZ:  # how a program ends that may write no larger file
        raise FullError("no space left", where=f"{transfers[0].path.parent}")
    if done.status < 0 or set(faults) != set(range(len(transfers))):
        raise failure(command, done, None)
    return {transfers[number].path: fault for number, fault in faults.items() if fault.code}


def render_config(transfers: Sequence[Transfer], at_once: int) -> str:
    """What curl reads from its standard input ("--config" of curl(1))."""
    head = f"silent\nparallel\nparallel-max = {at_once}\nno-progress-meter\n"
    return head + "next\n".join(
        render_transfer(number, transfer) for number, transfer in enumerate(transfers)
    )


def render_transfer(number: int, transfer: Transfer) -> str:
    scheme = split_uri(transfer.uri).scheme
    # What is not signed, such as repomd.xml of some vendors, must not be asked for in the clear.
    redirected = "=https" if scheme == "https" else "=http,https"
    options = {
        "url": transfer.uri,
        "output": f"{transfer.path}",
        "proto": f"={scheme}" if scheme == "file" else "=http,https",
        "proto-redir": redirected,
        "max-redirs": "5",
        "connect-timeout": f"{CONNECT_S}",
        "speed-time": f"{SILENT_S}",
        "speed-limit": "1",
        "write-out": f"{number} %{{exitcode}} %{{http_code}} %{{errormsg}}\\n",
    }
    if transfer.size is not None:
        options["max-filesize"] = f"{transfer.size}"
    if transfer.resume and transfer.path.exists():
        options["continue-at"] = "-"
    # What has arrived is in the file at once: others measure it, and resume it.
    flags = "".join(f"{flag}\n" for flag in ("fail", "location", "globoff", "no-buffer"))
    return flags + "".join(f"{name} = {quoted(text)}\n" for name, text in options.items())


def quoted(text: str) -> str:
    """A value in curl's configuration.  Raises WorkError for one that is more than a line."""
    if any(character in text for character in "\0\r\n"):
        raise WorkError(f"an address or a path has a line end: {fit(text)}")
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'
