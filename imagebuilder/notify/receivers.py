# SPDX-License-Identifier: Apache-2.0
"""The `notify` of the site file -> receivers, and the program that delivers to each.

A program of ours (deliver.py) talks to webhooks and mail servers, because a program can be ended at
any moment: waiting for a name server, or for a server that sends a byte a minute, cannot.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from imagebuilder.errors import InputError, WorkError
from imagebuilder.files import read_plain
from imagebuilder.notify.types import Message, MessageReceiver
from imagebuilder.process import paste
from imagebuilder.recipe.read import load_site_file
from imagebuilder.settings import Settings, find_home

if TYPE_CHECKING:
    from imagebuilder.recipe.model_notify import MailModel, NotifyModel, ReceiverModel

DELIVER = [sys.executable, "-P", "-m", "imagebuilder.notify.deliver"]


@dataclass(frozen=True)
class Credential:
    """A file with an address, and the name under which systemd gives it to a service."""

    name: str
    path: Path


def load_notify(settings: Settings, env: Mapping[str, str]) -> NotifyModel:
    """The `notify` of the site file, its defaults without one.  Raises InputError."""
    return load_site_file(settings, env).notify


def find_receivers(site: NotifyModel, env: Mapping[str, str]) -> tuple[MessageReceiver, ...]:
    """Everybody who gets notifications."""
    return tuple(make_receiver(name, model, env) for name, model in site.to.items())


def make_receiver(name: str, model: ReceiverModel, env: Mapping[str, str]) -> MessageReceiver:
    if model.mail:
        shown, render = ", ".join(model.mail.to), partial(render_mail, model.mail)
    elif model.program:
        shown, render = paste(model.program[:1]), partial(render_program, model.program)
    else:
        shown, render = "webhook", partial(render_post, name, model, env)
    return MessageReceiver(name, shown, frozenset(model.kinds), frozenset(model.groups), render)


def find_credentials(site: NotifyModel, env: Mapping[str, str]) -> Iterator[Credential]:
    """The files with addresses, for the unit of a service.  Raises InputError if one is missing."""
    for name, model in site.to.items():
        if model.webhook_file:
            path = in_home(model.webhook_file, env)
            if not path.is_file():
                hint = f"notify.to.{name}.webhook-file names it"
                raise InputError("does not exist", where=os.fspath(path), hint=hint)
            yield Credential(credential_of(name), path)


def credential_of(name: str) -> str:
    return f"notify-{name}"


def in_home(path: str, env: Mapping[str, str]) -> Path:
    """A path of the site file; `~` is the person's home, also under sudo."""
    home = find_home(env)
    return home / path.removeprefix("~/") if path.startswith("~/") else Path(path).absolute()


def find_address(name: str, model: ReceiverModel, env: Mapping[str, str]) -> str:
    """The address of a webhook: the service's credential, the site's file, the site itself.

    Raises WorkError when a file that should have it cannot be read.
    """
    credential = Path(env.get("CREDENTIALS_DIRECTORY", ""), credential_of(name))
    if credential.is_absolute() and credential.is_file():
        return read_secret(credential)
    if model.webhook_file:
        return read_secret(in_home(model.webhook_file, env))
    return model.webhook.get_secret_value() if model.webhook else ""


def read_secret(path: Path) -> str:
    """The only line of a file.  Raises WorkError."""
    try:
        return read_plain(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "is not text"
        raise WorkError(f"cannot be read: {what}", where=os.fspath(path)) from None


def render_body(message: Message) -> str:
    return json.dumps(message.as_json(), ensure_ascii=True)


def render_post(
    name: str, model: ReceiverModel, env: Mapping[str, str], message: Message
) -> tuple[list[str], bytes]:
    """For deliver.py, which posts it.  Raises WorkError."""
    address = find_address(name, model, env)
    order = {"address": address, "id": message.id, "body": render_body(message)}
    return DELIVER, json.dumps(order).encode()


def render_program(program: list[str], message: Message) -> tuple[list[str], bytes]:
    return program, f"{render_body(message)}\n".encode()


def render_mail(mail: MailModel, message: Message) -> tuple[list[str], bytes]:
    """For deliver.py, which gives it to a server, or for sendmail(8)."""
    made = make_mail(mail, message)
    if not mail.relay:
        return ["sendmail", "-i", "-t"], made.as_bytes(policy=SMTP.clone(linesep="\n"))
    return DELIVER, json.dumps({"relay": mail.relay, "mail": made.as_string()}).encode()


def make_mail(mail: MailModel, message: Message) -> EmailMessage:
    """The mail (RFC 5322), ASCII on the wire, marked as a program's (RFC 3834)."""
    host = re.sub(r"[^A-Za-z0-9.-]", "", socket.gethostname()) or "localhost"
    made = EmailMessage(policy=SMTP)
    made["Subject"] = f"imagebuilder: {message.text}"
    made["From"] = mail.sender or f"imagebuilder@{host}"
    made["To"] = ", ".join(mail.to)
    made["Date"] = format_datetime(datetime.fromisoformat(message.at))
    made["Message-ID"] = f"<{message.id}@{host}>"
    made["Auto-Submitted"] = "auto-generated"
    text = message.details.encode(errors="replace").decode()
    made.set_content(text, cte="quoted-printable")
    return made
