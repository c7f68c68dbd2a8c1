# SPDX-License-Identifier: Apache-2.0
"""Who is told of a night: a webhook and a mailbox, as the site file has it.

A night never fails because of them: what could not be told is a warning.  The webhook's address may
hold a token, so that nothing here shows more of it than the host.
"""

from __future__ import annotations

import logging
import os
import re
import smtplib
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from imagebuilder.digest import Json
from imagebuilder.errors import ImagebuilderError, WorkError
from imagebuilder.nightly.history import NIGHTS, find_ids, read_nights, unchanged
from imagebuilder.nightly.message import headline, render_message, webhook_json
from imagebuilder.nightly.page import page_of
from imagebuilder.nightly.site import find_webhook_file
from imagebuilder.nightly.types import NightlyRun
from imagebuilder.process import check_tools, run
from imagebuilder.ui import Ui

if TYPE_CHECKING:
    from imagebuilder.recipe.model_nightly import MailModel, NightlyModel

CREDENTIAL = "webhook"  # the name systemd gives it by, see nightly.service.j2
SMTP_PORT = 25


@dataclass(frozen=True)
class WebhookPatience:
    """How long to wait for an answer, how often to try a webhook, how long before it again (s)."""

    answer: float = 15.0
    tries: int = 3
    pause: float = 5.0


def notify(
    night: NightlyRun,
    folder: Path,
    site: NightlyModel,
    ui: Ui,
    patience: WebhookPatience = WebhookPatience(),
) -> tuple[str, ...]:
    """Tell of a night whose report is in `folder` where the site wants it.

    Never raises; returns what could not be told, which `ui` was given as warnings.
    """
    if not is_wanted(night, site.when, cut_off=was_cut_off(night, folder)):
        return ()
    page = folder / NIGHTS / page_of(night.id)
    failures = []
    try:
        post_webhook(night, page, site, patience)
    except ImagebuilderError as error:
        failures.append(f"could not call the webhook: {error}")
    try:
        send_mail(night, page, site.mail, patience)
    except ImagebuilderError as error:
        failures.append(f"could not send the mail: {error}")
    for failure in failures:
        ui.warn(failure)
    return tuple(failures)


def is_wanted(night: NightlyRun, when: str, *, cut_off: bool) -> bool:
    """Whether somebody wants to know; `cut_off` is whether the night before did not end."""
    if when == "always":
        return True
    return night.failed or cut_off or (when == "changed" and not unchanged(night))


def was_cut_off(night: NightlyRun, folder: Path) -> bool:
    """Whether the night before did not come to its end: it could tell nobody itself."""
    ids = [each for each in find_ids(folder) if each < night.id]
    return any(not each.finished for each in read_nights(folder, ids[-1:]).nights)


def post_webhook(
    night: NightlyRun, page: Path, site: NightlyModel, patience: WebhookPatience
) -> None:
    """Post the night.  Raises WorkError."""
    if address := find_webhook(site, os.environ):
        post(address, webhook_json(night, page), patience)


def find_webhook(site: NightlyModel, env: Mapping[str, str]) -> str:
    """The address: the service's credential, the site's file, the site itself; "" for none.

    Raises WorkError when a file that should have it cannot be read.
    """
    given = (
        Path(env["CREDENTIALS_DIRECTORY"], CREDENTIAL) if "CREDENTIALS_DIRECTORY" in env else None
    )
    if given and given.is_file():
        return read_secret(given)
    if path := find_webhook_file(site, env):
        return read_secret(path)
    return site.webhook.get_secret_value() if site.webhook else ""


def read_secret(path: Path) -> str:
    """The only line of a file.  Raises WorkError."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "is not text"
        raise WorkError(f"cannot be read: {what}", where=os.fspath(path)) from None


def post(address: str, value: Json, patience: WebhookPatience) -> None:
    """Post JSON, again if the other side was not there or in trouble.

    Raises WorkError without `from`: what is behind it shows the address.
    """
    host = find_host(address)
    what = ""
    for number in range(patience.tries):
        if number:
            time.sleep(patience.pause)
        what, again = try_post(address, value, patience.answer)
        if not what:
            return
        if not again:
            break
    raise WorkError(what, where=host or "its address")


def find_host(address: str) -> str:
    """The host in a URL, "" where there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def try_post(address: str, value: Json, timeout: float) -> tuple[str, bool]:
    """Once: what went wrong ("" for nothing), and whether it may go better another time."""
    import requests  # slow to import
    from urllib3.exceptions import HTTPError

    from imagebuilder.doctor.inputs import why

    try:
        with (
            silent("urllib3"),
            requests.post(
                address, json=value, timeout=timeout, allow_redirects=False, stream=True
            ) as answer,
        ):
            status = answer.status_code
    except requests.Timeout:
        return f"did not answer within {timeout:.0f} s", True
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
        return f"is not reachable: {why(error)}", True
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        return f"cannot be asked: {type(error).__name__}", False
    if 200 <= status < 300:
        return "", False
    return f"answers {status}", status >= 500 or status == 429


@contextmanager
def silent(name: str) -> Iterator[None]:
    """Keep a library from logging: what urllib3 logs has the whole address in it."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def send_mail(
    night: NightlyRun, page: Path, mail: MailModel | None, patience: WebhookPatience
) -> None:
    """Send the night to the mailboxes.  Raises ImagebuilderError."""
    if mail is None:
        return
    message = make_mail(night, page, mail)
    if mail.relay:
        send_to_relay(message, mail.relay, patience.answer)
    else:
        check_tools("sendmail")
        seconds = f"{patience.answer * patience.tries:.0f}"
        text = message.as_bytes(policy=SMTP.clone(linesep="\n"))
        run(["timeout", seconds, "sendmail", "-i", "-t"], stdin=text)


def make_mail(night: NightlyRun, page: Path, mail: MailModel) -> EmailMessage:
    """The mail (RFC 5322), ASCII on the wire, marked as a program's (RFC 3834)."""
    host = re.sub(r"[^A-Za-z0-9.-]", "", socket.gethostname()) or "localhost"
    message = EmailMessage(policy=SMTP)
    message["Subject"] = f"imagebuilder: {headline(night)}"
    message["From"] = mail.sender or f"imagebuilder@{host}"
    message["To"] = ", ".join(mail.to)
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = make_msgid(domain=host)
    message["Auto-Submitted"] = "auto-generated"
    text = render_message(night, page).encode(errors="replace").decode()
    message.set_content(text, cte="quoted-printable")
    return message


def send_to_relay(message: EmailMessage, relay: str, timeout: float) -> None:
    """Give a mail to a server.  Raises WorkError."""
    try:
        host, port = split_relay(relay)
        # Our own name as it is: finding the whole one can take a resolver half a minute.
        with smtplib.SMTP(host, port, socket.gethostname(), timeout) as server:
            refused = server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        refused = error.recipients
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error
        words = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise WorkError(f"answers {error.smtp_code} {words}", where=relay) from error
    except TimeoutError as error:
        raise WorkError(f"did not answer within {timeout:.0f} s", where=relay) from error
    except (smtplib.SMTPException, OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise WorkError(f"did not take it: {what}", where=relay) from error
    if refused:
        named = ", ".join(f"{who} ({code})" for who, (code, _) in sorted(refused.items()))
        raise WorkError(f"did not take it for {named}", where=relay)


def split_relay(relay: str) -> tuple[str, int]:
    """Host and port of `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.  Raises ValueError."""
    parts = urlsplit(f"//{relay}")
    return parts.hostname or "", parts.port or SMTP_PORT
