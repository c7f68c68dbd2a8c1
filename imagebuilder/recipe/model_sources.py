# SPDX-License-Identifier: Apache-2.0
"""Sources of packages: the archives of a base, and the vendors' repositories of an overlay."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import Fingerprint, Model, Name, RootPath

STREAMS = (
    "Modules of packages that are enabled, NAME:STREAM, such as `nvidia-driver:open-dkms`; others "
    "have their default stream, or are not available. Only on Rocky Linux."
)


class ExpiredReleaseModel(Model):
    """Consent to a Release file past its Valid-Until, which is refused otherwise."""

    accept_days: int = Field(
        ge=1, le=3650, description="How many days past its end it is accepted."
    )
    because: str = Field(
        min_length=10, description="Reason; printed by every lock and recorded in it."
    )


class ArchiveModel(Model):
    """Suites of a distribution's archive, reached through a mirror of the host."""

    mirror: Name = Field(
        description="Name of a mirror of the host: `debian`, `debian-security`, `ubuntu`, "
        "`ubuntu-security`, `rocky`, `epel`."
    )
    suites: list[Name] = Field(
        min_length=1, description='Suites, such as `trixie`, or `"9"` of Rocky Linux.'
    )
    components: list[Name] = Field(
        min_length=1, description="Components, such as `main`, or `BaseOS` of Rocky Linux."
    )
    modules: Annotated[list[str], rules.STREAM] = Field(default=[], description=STREAMS)
    keyring: RootPath = Field(
        description="Keyring on the host that signs the archive, or the packages of an archive "
        "that is not signed itself."
    )
    snapshot: str = Field(
        default="",
        pattern=rules.SNAPSHOT.whole,
        description="Time stamp on a snapshot mirror; the mirror's address has `{snapshot}` in it.",
    )
    expired_release: ExpiredReleaseModel | None = Field(
        default=None, description="Accept an expired Release file, and why; not on Rocky Linux."
    )


class SourceModel(Model):
    """A vendor's package repository, its key pinned by fingerprint."""

    name: Name = Field(description="Short name; appears in locks and messages.")
    uri: str = Field(pattern=rules.ARCHIVE.whole, description="Root of the repository. Template.")
    suites: list[str] = Field(
        min_length=1,
        description="Suites, such as `noble`; one that ends with a slash is the exact folder below "
        "`uri`, and `/` is `uri` itself. Template.",
    )
    components: list[str] = Field(default=[], description="Components.")
    modules: Annotated[list[str], rules.STREAM] = Field(
        default=[], description=f"{STREAMS} Template."
    )
    key: str = Field(description="Armoured or binary OpenPGP certificate, a path in the overlay.")
    fingerprints: list[Fingerprint] = Field(
        min_length=1, description="Exactly the fingerprints that the key file must have."
    )
    pin_packages: list[str] = Field(
        default=["*"],
        description="Packages, by name or glob, that `pin-priority` and `pin-version` are for. All "
        "others of this source can be chosen too, with priority 500: nothing is excluded.",
    )
    pin_priority: int = Field(
        default=500, ge=-1, le=1001, description="Their priority; other sources have 500."
    )
    pin_version: str = Field(
        default="", description="Version of those packages; those of one driver match. Template."
    )
    expired_release: ExpiredReleaseModel | None = Field(
        default=None, description="Accept an expired Release file, and why."
    )
    when: str = Field(default="true", description="Jinja2 expression over the vars.")
