# SPDX-License-Identifier: Apache-2.0
"""What people type about nights: the `nightly` of the site file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints
from pydantic_core import PydanticCustomError

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import Model, Name
from imagebuilder.window import parse_window

Address = Annotated[str, StringConstraints(pattern=rules.MAIL.whole)]
Relay = Annotated[str, StringConstraints(pattern=rules.RELAY.whole)]


def check_web_address(given: SecretStr) -> SecretStr:
    """An http or https URL; it may hold a token, so that no message shows it."""
    if not given.get_secret_value().startswith(("https://", "http://")):
        raise PydanticCustomError("web_address", "must begin with https:// or http://")
    return given


class MailModel(Model):
    """Mail about nights."""

    to: list[Address] = Field(min_length=1, description="Who gets it.")
    sender: Address = Field(
        default="", alias="from", description="Sender; `imagebuilder@HOST` by default."
    )
    relay: Relay = Field(
        default="",
        description="Mail server as `HOST` or `HOST:PORT` (25) that takes it without a login; "
        "without one, sendmail(8) of this host sends it.",
    )


def check_window(text: str) -> str:
    """A maintenance window."""
    try:
        parse_window(text)
    except ValueError as error:
        raise PydanticCustomError("window", "{why}", {"why": str(error)}) from error
    return text


class NightlyRolloutModel(Model):
    """How nightly runs roll releases out; the keys are the options of `imagebuilder rollout`."""

    window: Annotated[str, AfterValidator(check_window)] = Field(
        description="When nodes may be rebooted, by the clock of this host: `Sun 02:00-05:00`, "
        "`Mon..Fri 22:00-04:00`, `01:00-05:00`."
    )
    canary: str = Field(default="", description="Nodes to begin with; the first one up by default.")
    batch: str = Field(default="25%", description="Nodes after the canary: a share or a number.")
    at_once: int = Field(
        default=0, ge=0, description="Most nodes in between at a time; 0: a whole phase."
    )
    timeout: int = Field(
        default=900, ge=1, description="Seconds for a node to reboot and be found healthy."
    )
    drain: str = Field(
        default="none", min_length=1, description="none, slurm, kubernetes, or a program of yours."
    )
    drain_timeout: int = Field(
        default=43_200, ge=1, description="Seconds for the work on a node to end."
    )
    accept: list[Literal["degraded", "wrong results", "missing device", "unknown"]] = Field(
        default=[], description="Verdicts on health to take for good."
    )


class NightlyModel(Model):
    """What `imagebuilder nightly` does and whom it tells; its options win over this."""

    profiles: list[Name] = Field(default=[], description="Profiles in order; all by default.")
    promote: bool = Field(default=False, description="Move `stable` to what passed its boot test.")
    rollout: NightlyRolloutModel | None = Field(
        default=None,
        description="Roll out what passed its boot test, in a maintenance window; not beside "
        "`promote`.",
    )
    keep: int = Field(
        default=5, ge=1, le=1000, description="Images and releases to keep per profile."
    )
    commit: bool = Field(default=False, description="Commit the locks to git after the run.")
    report: str = Field(
        default="", description="Folder of the report and the history (`~` is your home)."
    )
    when: Literal["failed", "changed", "always"] = Field(
        default="changed",
        description="When to tell: a failure, anything but a night in which all was unchanged, or "
        "each night.",
    )
    webhook: Annotated[SecretStr, AfterValidator(check_web_address)] | None = Field(
        default=None,
        description="URL to which the record of a run is posted as JSON. It is never shown.",
    )
    webhook_file: str = Field(
        default="",
        description="File with that URL instead (`~` is your home); the timer's service gets it as "
        "a credential (systemd.exec(5) LoadCredential).",
    )
    mail: MailModel | None = Field(default=None, description="Mail.")
