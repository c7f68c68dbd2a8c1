# SPDX-License-Identifier: Apache-2.0
"""Certificates: armoured or not, with the fingerprints that are pinned, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.errors import InputError
from imagebuilder.recipe.keys import BEGIN, dearmoured, find_fingerprints, load_key
from imagebuilder.recipe.types import Source
from tests.fixtures.aptrepo import SigningKey, gpg


@pytest.fixture
def source(keys: tuple[SigningKey, SigningKey]) -> Source:
    return Source(
        "v", ("s",), (), keys[0].certificate, uri="https://vendor.example",
        fingerprints=(keys[0].fingerprint,),
    )  # fmt: skip


def test_armoured_and_binary_are_the_same(
    source: Source, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    armoured = tmp_path / "key.asc"
    armoured.write_text(gpg(keys[0].home, "--armor", "--export", keys[0].fingerprint))
    assert load_key(replace(source, key=armoured)) == load_key(source)


def test_a_file_with_two_keys_needs_both(
    source: Source, keys: tuple[SigningKey, SigningKey], tmp_path: Path
) -> None:
    both = tmp_path / "both.gpg"
    both.write_bytes(b"".join(key.certificate.read_bytes() for key in keys))
    with pytest.raises(InputError, match="the overlay pins"):
        load_key(replace(source, key=both))
    pinned = tuple(key.fingerprint for key in keys)
    assert load_key(replace(source, key=both, fingerprints=pinned)) == both.read_bytes()


@pytest.mark.parametrize("before", [b" ", b"x", b"# ", b"-", b"\t"])
def test_a_key_that_gpg_does_not_see_in_the_file_is_not_trusted(
    source: Source, keys: tuple[SigningKey, SigningKey], tmp_path: Path, before: bytes
) -> None:
    """gpg looks for armour at the beginning of lines alone; the pins are of what apt gets."""
    pinned, hidden = (gpg(k.home, "--armor", "--export", k.fingerprint).encode() for k in keys)
    path = tmp_path / "key.asc"
    for content in (pinned + before + hidden, before + hidden + pinned, pinned.rstrip() + hidden):
        path.write_bytes(content)
        with pytest.raises(InputError, match="the overlay pins"):
            load_key(replace(source, key=path))
        assert find_fingerprints(path) == tuple(sorted(key.fingerprint for key in keys))


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x99\xff", b"\x80", b"\xc6\xff"])
def test_what_is_no_certificate(source: Source, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not an OpenPGP certificate|no key"):
        load_key(replace(source, key=path))


def test_a_key_that_is_not_there(source: Source, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_key(replace(source, key=tmp_path / "none"))


@given(st.binary(max_size=200))
def test_any_bytes_are_read(content: bytes) -> None:
    assert isinstance(dearmoured(BEGIN + b"\n\n" + content), bytes)
