# SPDX-License-Identifier: Apache-2.0
"""The `notify` section of the site file."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import Model, Name

Address = Annotated[str, StringConstraints(pattern=rules.MAIL.whole)]
Relay = Annotated[str, StringConstraints(pattern=rules.RELAY.whole)]
Kind = Literal[
    "node-failed", "node-ill", "node-silent", "node-fell-back", "node-ready",
    "rollout-started", "rollout-paused", "rollout-stopped", "rollout-interrupted",
    "rollout-finished",
    "nightly-failed", "nightly-changed", "nightly-unchanged",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
USUAL: tuple[Kind, ...] = KINDS[:-1]
WAYS = ("webhook", "webhook-file", "mail", "exec")


def check_web_address(url: SecretStr) -> SecretStr:
    """An http or https URL; no message shows it, because it may contain a token."""
    if not url.get_secret_value().startswith(("https://", "http://")):
        raise PydanticCustomError("web_address", "must begin with https:// or http://")
    return url


class MailModel(Model):
    """Notifications by mail."""

    to: list[Address] = Field(min_length=1, description="Recipients.")
    sender: Address = Field(
        default="", alias="from", description="Sender; `imagebuilder@HOST` by default."
    )
    relay: Relay = Field(
        default="",
        description="Mail server, `HOST` or `HOST:PORT` (default 25), that accepts it without a "
        "login; by default sendmail(8) of this host sends it.",
    )


class ReceiverModel(Model):
    """A receiver of notifications: `webhook`, `webhook-file`, `mail` or `exec`."""

    webhook: Annotated[SecretStr, AfterValidator(check_web_address)] | None = Field(
        default=None,
        description="URL to which each message is posted as JSON. It is never shown.",
    )
    webhook_file: str = Field(
        default="",
        description="File with that URL instead (`~` is your home); services get it as a "
        "credential (systemd.exec(5) LoadCredential).",
    )
    mail: MailModel | None = Field(default=None, description="Mail.")
    program: list[str] = Field(
        default=[],
        alias="exec",
        description="Program and its arguments; it gets each message as JSON on standard input.",
    )
    kinds: list[Kind] = Field(
        default=[*USUAL],
        min_length=1,
        description="Kinds of messages it gets; by default all except `nightly-unchanged`.",
    )
    groups: list[Name] = Field(
        default=[], description="Groups of nodes it gets messages about; all nodes by default."
    )

    @model_validator(mode="after")
    def check_one_way(self) -> Self:
        """A receiver has exactly one way to reach it."""
        ways = (self.webhook, self.webhook_file, self.mail, self.program)
        if sum(map(bool, ways)) != 1:
            what = f"must have exactly one of {', '.join(WAYS)}"
            raise PydanticCustomError("one_way", "{what}", {"what": what})
        return self


class NotifyModel(Model):
    """Notifications about nodes, roll-outs and nightly runs."""

    to: dict[Name, ReceiverModel] = Field(default={}, description="Receivers, by name.")
    gather: int = Field(
        default=30,
        ge=0,
        le=600,
        description="Seconds during which changes of nodes are collected into one message.",
    )
    per_hour: int = Field(
        default=4,
        ge=1,
        description="Maximum changes of one node that are reported per hour; the next message "
        "says how many were left out.",
    )
    silent_after: int = Field(
        default=300,
        ge=0,
        description="Seconds without an answer after which a node is reported as silent.",
    )
