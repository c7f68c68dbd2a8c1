# SPDX-License-Identifier: Apache-2.0
"""Tokens: what is kept of them, and whose file they are in."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError, RootError
from imagebuilder.settings import load_settings
from imagebuilder.tree import make_tree
from imagebuilder.web.act_client import ActClient
from imagebuilder.web.roles import Role
from imagebuilder.web.tokens import (
    add_token,
    find_token,
    find_token_file,
    load_tokens,
    remove_token,
)

REPO = Path(__file__).resolve().parents[3]

NOBODY = 65534


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "etc/tokens.json"


def test_a_token_is_shown_once_and_kept_as_its_hash(tokens: Path) -> None:
    secret = add_token(tokens, "ada", Role.POWER)
    assert secret not in tokens.read_text()
    assert tokens.stat().st_mode & 0o777 == 0o600
    found = find_token(tokens, secret)
    assert found
    assert (found.name, found.role) == ("ada", Role.POWER)
    assert find_token(tokens, secret[:-1]) is None
    assert find_token(tokens, "") is None
    with pytest.raises(InputError, match="token 'ada' already exists"):
        add_token(tokens, "ada", Role.ADMIN)
    for name in ("", "-x", "a b", "a\n", "x" * 65):
        with pytest.raises(InputError, match="is not a name"):
            add_token(tokens, name, Role.ADMIN)
    remove_token(tokens, "ada")
    assert not tokens.exists()
    with pytest.raises(InputError, match="unknown token 'ada'"):
        remove_token(tokens, "ada")


@pytest.mark.parametrize("given", ["", "/elsewhere/tokens.json"])
def test_the_system_has_one_file(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """--system is what one asked for last, and is never somebody's own file."""
    env = {"IMAGEBUILDER_TOKENS": given, "HOME": "/home/ada"}
    settings = load_settings(env, project=REPO)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert find_token_file(settings, env, system=True) == Path("/etc/imagebuilder/tokens.json")
    assert find_token_file(settings, env) == Path(given or "/etc/imagebuilder/tokens.json")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert find_token_file(settings, env) == Path(given or settings.site.with_name("tokens.json"))
    with pytest.raises(RootError, match="the system's tokens needs root"):
        find_token_file(settings, env, system=True)


@pytest.mark.parametrize("words", [["add", "ada", "--role", "power"], ["list"], ["remove", "ada"]])
def test_the_system_s_tokens_are_root_s(tmp_path: Path, words: list[str]) -> None:
    """Somebody else learns what to type, and has no file of their own afterwards."""
    become: tuple[str, ...] = ()
    if os.geteuid() == 0:
        become = ("setpriv", f"--reuid={NOBODY}", "--clear-groups", "--")
        os.chown(tmp_path, NOBODY, NOBODY)
    env = {"HOME": str(tmp_path), "IMAGEBUILDER_SUDO": "never", "PATH": os.environ["PATH"]}
    argv = [*become, sys.executable, "-m", "imagebuilder.cli.main", "token", *words, "--system"]
    done = subprocess.run(argv, env=env, capture_output=True, check=False, text=True, timeout=300)
    assert done.returncode == 3, done.stderr
    assert "having the system's tokens needs root" in done.stderr
    assert done.stdout == ""
    assert [*tmp_path.iterdir()] == []


def test_every_token_counts_until_it_is_removed(tokens: Path) -> None:
    secrets = {name: add_token(tokens, name, Role.POWER) for name in ("ada", "ben", "eve")}
    remove_token(tokens, "ada")
    assert find_token(tokens, secrets["ada"]) is None
    for name in ("ben", "eve"):
        found = find_token(tokens, secrets[name])
        assert found
        assert found.name == name


def test_two_who_add_and_remove_at_a_time_lose_nothing(tokens: Path) -> None:
    add_token(tokens, "first", Role.POWER)
    for number in range(6):
        add_token(tokens, f"old{number}", Role.POWER)

    def change(number: int) -> None:
        add_token(tokens, f"new{number}", Role.POWER)
        remove_token(tokens, f"old{number}")

    threads = [threading.Thread(target=change, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {token.name for token in load_tokens(tokens)}
    assert names == {"first", *(f"new{number}" for number in range(6))}


def test_where_no_file_can_be_there_is_no_token(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    assert load_tokens(place / "tokens.json") == ()


def test_a_file_of_somebody_else_gives_no_rights(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_token(tokens, "ada", Role.ADMIN)
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    if owner == 0:  # whom everybody trusts
        os.chown(tokens, 65533, 65533)
    with pytest.raises(HostError, match="others could write"):
        load_tokens(tokens)


def test_whoever_runs_the_page_sees_that_there_are_tokens(tmp_path: Path) -> None:
    """The page asks whether there is a file in a folder of root's, whose umask may be any."""
    before = os.umask(0o077)
    try:
        add_token(tmp_path / "etc/imagebuilder/tokens.json", "ada", Role.ADMIN)
    finally:
        os.umask(before)
    folder = tmp_path / "etc/imagebuilder"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "tokens.json").stat().st_mode) == 0o600
    assert ActClient(make_tree(tmp_path / "tree"), folder / "tokens.json").is_open
