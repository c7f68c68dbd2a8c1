# SPDX-License-Identifier: Apache-2.0
"""The `nightly` section of the site file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from imagebuilder.recipe.model_words import Model, Name
from imagebuilder.window import parse_window

# Keys that moved to `notify`.
MOVED = ("when", "webhook", "webhook-file", "mail")


def check_window(text: str) -> str:
    try:
        parse_window(text)
    except ValueError as error:
        raise PydanticCustomError("window", "{why}", {"why": str(error)}) from error
    return text


class NightlyRolloutModel(Model):
    """How nightly runs roll out releases; the keys are the options of `imagebuilder rollout`."""

    window: Annotated[str, AfterValidator(check_window)] = Field(
        description="When nodes may be rebooted, by the clock of this host: `Sun 02:00-05:00`, "
        "`Mon..Fri 22:00-04:00`, `01:00-05:00`."
    )
    canary: str = Field(default="", description="Nodes to start with; the first one up by default.")
    batch: str = Field(
        default="25%", description="Nodes after the canary: a percentage or a number."
    )
    at_once: int = Field(
        default=0, ge=0, description="Maximum nodes updated at the same time; 0: a whole phase."
    )
    timeout: int = Field(
        default=900, ge=1, description="Seconds for a node to reboot and become healthy."
    )
    drain: str = Field(
        default="none", min_length=1, description="none, slurm, kubernetes, or a program of yours."
    )
    drain_timeout: int = Field(
        default=43_200, ge=1, description="Seconds for the work on a node to end."
    )
    accept: list[Literal["degraded", "wrong results", "missing device", "unknown"]] = Field(
        default=[], description="Health verdicts to accept as ok."
    )


class NightlyModel(Model):
    """What `imagebuilder nightly` does; its options override this."""

    profiles: list[Name] = Field(default=[], description="Profiles in order; all by default.")
    promote: bool = Field(
        default=False, description="Move `stable` to releases that passed their boot test."
    )
    rollout: NightlyRolloutModel | None = Field(
        default=None,
        description="Roll out releases that passed their boot test, in a maintenance window; "
        "cannot be combined with `promote`.",
    )
    keep: int = Field(
        default=5, ge=1, le=1000, description="Images and releases to keep per profile."
    )
    commit: bool = Field(default=False, description="Commit the locks to git after the run.")
    report: str = Field(
        default="", description="Folder of the report and the history (`~` is your home)."
    )

    @model_validator(mode="before")
    @classmethod
    def check_moved(cls, value: object) -> object:
        """Refuse keys of notifications, which have their own section now."""
        moved = [key for key in MOVED if isinstance(value, dict) and key in value]
        if moved:
            what = (
                f"{', '.join(moved)}: moved to the section `notify`: write "
                "`notify: {to: {NAME: {mail: {to: [root]}}}}`, or `webhook-file: PATH` instead of "
                "`mail`; `kinds: [nightly-failed]` replaces `when: failed`"
            )
            raise PydanticCustomError("moved", "{what}", {"what": what})
        return value
