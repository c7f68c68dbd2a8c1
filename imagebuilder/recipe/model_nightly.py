# SPDX-License-Identifier: Apache-2.0
"""What people type about nights: the `nightly` of the site file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints
from pydantic_core import PydanticCustomError

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import Model, Name

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


class NightlyModel(Model):
    """What `imagebuilder nightly` does and whom it tells; its options win over this."""

    profiles: list[Name] = Field(default=[], description="Profiles in order; all by default.")
    promote: bool = Field(default=False, description="Move `stable` to what passed its boot test.")
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
