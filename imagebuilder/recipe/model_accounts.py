# SPDX-License-Identifier: Apache-2.0
"""Accounts of an overlay, and the access it grants on purpose: `users:`, `groups:`, `grants:`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import AccountName, Entry, Model


class UserModel(Model):
    """A user account (useradd(8)).  It has no password."""

    name: Annotated[str, rules.ACCOUNT] = Field(description="Login name. Template.")
    uid: int | None = Field(
        default=None, ge=1, le=60000, description="Fixed uid; by default the next free one."
    )
    home: Annotated[str, rules.PLACE] = Field(
        default="", description="Home, `/home/NAME` unless set. Template."
    )
    shell: Annotated[str, rules.PLACE] = Field(default="/bin/bash", description="Login shell.")
    groups: Annotated[list[Entry], rules.ACCOUNT] = Field(
        default=[], description="Supplementary groups."
    )
    system: bool = Field(default=False, description="A system account.")
    comment: Annotated[str, rules.GECOS] = Field(default="", description="GECOS field. Template.")
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class GroupModel(Model):
    """A group (groupadd(8)); one that exists is kept."""

    name: AccountName = Field(description="Group name.")
    gid: int | None = Field(
        default=None, ge=1, le=60000, description="Fixed gid; by default the next free one."
    )
    system: bool = Field(default=True, description="A system group.")


class GrantsModel(Model):
    """Ways to become root that `prove` accepts.  Paths may be globs."""

    sudo: Annotated[list[Entry], rules.SUDOER] = Field(
        default=[],
        description="Users and `%groups` that may run commands as root, by sudo, doas or polkit.",
    )
    keys: Annotated[list[Entry], rules.GLOB] = Field(
        default=[], description="Files with public keys that may log in."
    )
    passwords: Annotated[list[Entry], rules.ACCOUNT] = Field(
        default=[], description="Accounts that may log in over ssh with a password."
    )
    root_accounts: Annotated[list[Entry], rules.ACCOUNT] = Field(
        default=[], description="Accounts with uid 0 besides root."
    )
    groups: Annotated[list[Entry], rules.ACCOUNT] = Field(
        default=[],
        description="Groups that may have members although these can become root, such as "
        "`docker`.",
    )
    setuid: Annotated[list[Entry], rules.GLOB] = Field(
        default=[], description="Programs with the setuid or setgid bit."
    )
    capabilities: Annotated[list[Entry], rules.GLOB] = Field(
        default=[], description="Programs with file capabilities."
    )
    consoles: Annotated[list[Entry], rules.GLOB] = Field(
        default=[], description="Units and drop-ins that give a shell without a password."
    )
    writable: Annotated[list[Entry], rules.GLOB] = Field(
        default=[], description="Files that root runs or trusts and that others may change."
    )
    sources: Annotated[list[Entry], rules.GLOB] = Field(
        default=[], description="Files that allow packages to be installed without a signature."
    )


class AllowedSecretModel(Model):
    """A secret that everybody who can boot the image may know."""

    path: Annotated[str, rules.GLOB] = Field(description="Path in the root; a glob. Template.")
    because: str = Field(min_length=10, description="Reason; `show` and `prove` print it.")
    when: str = Field(default="true", description="Jinja2 expression over the vars.")
