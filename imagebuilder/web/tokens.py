# SPDX-License-Identifier: Apache-2.0
"""Tokens: who may act on the web page and in its API, and in what.

The file knows of each token its name, its role, its SHA-256 and when it was made.  A token has 256
random bits, so its hash needs neither salt nor time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.decode import JsonFile, UtcTime
from imagebuilder.digest import Json
from imagebuilder.errors import HostError, InputError
from imagebuilder.files import make_folder, write_file
from imagebuilder.locks import file_lock
from imagebuilder.rights import check_root, check_writable
from imagebuilder.settings import Settings
from imagebuilder.web.roles import Role

SYSTEM = Path("/etc/imagebuilder")
FILE = "tokens.json"
PREFIX = "ibt_"  # for those who look for secrets in files
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
HINT = "remove the file, and add the tokens again with imagebuilder token add"


@dataclass(frozen=True)
class Token:
    """What is on record of a token."""

    name: str
    role: Role
    sha256: str
    added: UtcTime

    def as_json(self) -> dict[str, Json]:
        return {"name": self.name, "role": self.role, "added": self.added}

    def row(self) -> tuple[str, ...]:
        """The columns of `token list`."""
        return self.name, self.role, self.added


@dataclass(frozen=True)
class TokenList:
    tokens: tuple[Token, ...] = ()


TOKENS = JsonFile(TokenList, 1, HINT)


def find_token_file(settings: Settings, env: Mapping[str, str], *, system: bool = False) -> Path:
    """Root's are the system's, everybody else has them beside their site file.

    `system` asks for the system's whatever the environment says.  Raises RootError unless we are
    root then.
    """
    if system:
        check_root("having the system's tokens")
        return SYSTEM / FILE
    if path := env.get("IMAGEBUILDER_TOKENS"):
        return Path(path).absolute()
    return (SYSTEM if os.geteuid() == 0 else settings.site.parent) / FILE


def load_tokens(path: Path) -> tuple[Token, ...]:
    """Every token; none where there is no file.  Raises InputError, HostError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise HostError(
            "others could write tokens into it",
            where=os.fspath(path),
            hint=f"make it yours alone: chown root {path}; chmod 600 {path}",
        )
    return TOKENS.load(path).tokens


def find_token(path: Path, secret: str) -> Token | None:
    """Whose token this is; None if nobody's.  Raises as load_tokens()."""
    wanted = digest_of(secret)
    found = None
    for token in load_tokens(path):  # every one is compared: the time tells nothing
        if hmac.compare_digest(token.sha256, wanted):
            found = token
    return found


def add_token(path: Path, name: str, role: Role) -> str:
    """A new token, which is shown this once.  Raises InputError."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a name for a token", hint="use letters, digits and . _ @ -"
        )
    secret = f"{PREFIX}{secrets.token_urlsafe(32)}"
    check_writable(path.parent)
    make_folder(path.parent)
    with file_lock(lock_of(path)):
        known = load_tokens(path)
        if any(token.name == name for token in known):
            hint = f"run imagebuilder token remove {name} first, or choose another name"
            raise InputError(f"token {name!r} already exists", hint=hint)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        save(path, (*known, Token(name, role, digest_of(secret), now)))
    return secret


def remove_token(path: Path, name: str) -> None:
    """From now on nobody may act with it.  The last one takes the file with it.

    Raises InputError.
    """
    known = load_tokens(path)
    if name not in [token.name for token in known]:
        listed = ", ".join(token.name for token in known) or "none"
        raise InputError(f"unknown token {name!r}", hint=f"available: {listed}")
    check_writable(path.parent)
    with file_lock(lock_of(path)):
        left = tuple(token for token in load_tokens(path) if token.name != name)
        if left:
            save(path, left)
        else:
            path.unlink()


def lock_of(path: Path) -> Path:
    """The lock of who changes the file of tokens."""
    return path.with_name(f".{path.name}.lock")


def save(path: Path, tokens: tuple[Token, ...]) -> None:
    write_file(path, TOKENS.render(TokenList(tokens)).encode(), 0o600)


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
