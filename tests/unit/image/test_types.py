# SPDX-License-Identifier: Apache-2.0
"""A manifest is decoded once, refused when it is damaged, and encoded as the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.errors import InputError
from imagebuilder.image.proof import Answer, Evidence, Finding, Level, Proof, Question
from imagebuilder.image.types import (
    Account,
    BootFile,
    Image,
    ImageBoot,
    ImageLayer,
    ImageSource,
    decode_image,
    encode_image,
    find_image,
    load_image,
)
from imagebuilder.recipe.types import Hardware
from imagebuilder.rootkind import KINDS
from imagebuilder.tree import NAME, is_name
from tests.fuzz.seeds import MANIFEST
from tests.images import IMAGE, packages_of

# What manifests have had since a later version of the program, latest last.
LATER = ("listens", "expectations", "slimmed", "builds", "proof")
WHOLE = {key: value for key, value in MANIFEST.items() if key != "expectations"}


def text_of(manifest: Mapping[str, object]) -> str:
    """A manifest as it has been written since the first version."""
    return json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("missing", range(len(LATER) + 1))
def test_older_manifests_lack_keys_and_keep_their_bytes(missing: int) -> None:
    lacking = LATER[missing:]
    text = text_of({key: value for key, value in WHOLE.items() if key not in lacking})
    image = decode_image(text, "older")
    assert all(getattr(image, key) is None for key in lacking)
    assert encode_image(image) == text


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=9)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(NAME, fullmatch=True).filter(is_name)
INPUTS = st.dictionaries(WORDS, JSON, max_size=3)
LAYERS = st.builds(
    ImageLayer, WORDS, WORDS, INPUTS, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)
)
SOURCES = st.builds(
    ImageSource, WORDS, WORDS, st.tuples(WORDS), st.integers(0, 2**33), WORDS, WORDS, WORDS,
    st.none() | WORDS,
)  # fmt: skip
EVIDENCE = st.builds(Evidence, WORDS, WORDS, WORDS, WORDS)
ANSWERS = st.sampled_from(Question).flatmap(
    lambda question: st.builds(
        Answer,
        st.just(question),
        st.tuples(
            st.builds(
                Finding,
                st.sampled_from(Level),
                WORDS,
                st.tuples(EVIDENCE),
                WORDS,
                st.just(question),
            )
        ),
    )
)
PROOFS = st.builds(Proof, WORDS, st.tuples(ANSWERS))
IMAGES = st.builds(
    Image, profile=NAMES, version=NAMES, epoch=st.integers(0, 2**33 - 1), description=WORDS,
    base=WORDS, distribution=WORDS, suite=WORDS, architecture=WORDS, overlays=st.tuples(WORDS),
    hardware=st.tuples(st.builds(Hardware, WORDS, WORDS, WORDS)),
    boot=st.builds(ImageBoot, st.sampled_from(KINDS), st.tuples(WORDS, WORDS)),
    root=st.just(IMAGE.root),
    kernel=st.sampled_from((IMAGE.kernel, replace(IMAGE.kernel, early=BootFile("e1", 2)))),
    sources=st.tuples(SOURCES), layers=st.tuples(LAYERS, LAYERS),
    packages=st.builds(packages_of, st.dictionaries(WORDS, WORDS, max_size=2)),
    wheels=st.just(()), listens=st.none() | st.tuples(WORDS),
    slimmed=st.none() | st.dictionaries(WORDS, st.integers(), max_size=2),
    proof=st.none() | PROOFS,
)  # fmt: skip


@given(IMAGES)
def test_every_image_is_read_as_it_was_written(image: Image) -> None:
    text = encode_image(image)
    assert text == text_of(json.loads(text))
    assert decode_image(text, "image") == image


@pytest.mark.parametrize(
    "part",
    [
        {"root": 1}, {"root": {"size": "1"}}, {"root": {**IMAGE.root.__dict__, "size": -1}},
        {"root": None}, {"boot": {"root": "nfs", "cmdline": "quiet"}}, {"packages": {}},
        {"packages": [1]}, {"layers": [{"inputs": []}]}, {"epoch": 1e3}, {"epoch": 99999999999999},
        {"proof": []}, {"proof": {"answers": [{}]}},
        {"listens": 3}, {"overlays": [[]]}, {"kernel": {"vmlinuz": "x"}},
        {"builds": [{"wheels": None}]}, {"wheels": [{"path": 7}]}, {"expectations": []},
        {"hardware": [None]}, {"sources": ["debian"]}, {"profile": "x" * 70_000},
        {"profile": ".."}, {"profile": "/etc"}, {"profile": "a/b"}, {"profile": ""},
        {"version": "/root/.ssh"}, {"version": "../1"}, {"version": "1\n"}, {"version": ".1"},
        {"version": "1.squashfs"}, {"version": "1.erofs"}, {"version": "tmp.1"},
        {"root": {**IMAGE.root.__dict__, "commit": "--repo=/srv/other"}},
        {"root": {**IMAGE.root.__dict__, "commit": "c" * 63}},
        {"boot": {"root": "floppy", "cmdline": []}},
    ],
)  # fmt: skip
def test_a_part_of_another_kind_is_named(part: Mapping[str, object], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({**WHOLE, **part}))
    with pytest.raises(InputError, match=f"is damaged: {next(iter(part))}") as caught:
        load_image(tmp_path)
    assert caught.value.faults[0].where == str(tmp_path / "manifest.json")
    assert find_image(tmp_path) is None


@pytest.mark.parametrize("key", sorted(set(WHOLE) - {*LATER, "schema"}))
def test_a_part_that_every_manifest_has_is_missed(key: str) -> None:
    lacking = {name: value for name, value in WHOLE.items() if name != key}
    with pytest.raises(InputError, match=f"generic@1: is damaged: {key}: is missing"):
        decode_image(json.dumps(lacking), "generic@1")


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_a_manifest_of_another_schema_is_refused(schema: object) -> None:
    with pytest.raises(InputError, match=rf"is of schema {schema}; this imagebuilder reads 1"):
        decode_image(json.dumps({**WHOLE, "schema": schema}), "generic@1")


def declaring(*inputs: Mapping[str, object]) -> Image:
    """An image whose overlays declare this, one after the other."""
    layers = [
        {"title": f"configure {n}", "digest": "a", "size": 0, "files": 0, "inputs": each}
        for n, each in enumerate(inputs)
    ]
    return decode_image(json.dumps({**WHOLE, "layers": layers}), "demo@1")


def test_what_overlays_declare_the_last_one_decides() -> None:
    image = declaring(
        {"step": "x"},
        {
            "groups": {"video": [None, True], "render": [None, True]},
            "users": {"me": [1000, "/home/me", "/bin/sh", ["render"], False, ""]},
            "units": {"enable": ["a.service", "b.service"], "disable": [], "mask": ["c.timer"]},
        },
        {"units": {"enable": [], "disable": [], "mask": ["b.service"]}},
    )
    assert image.groups == ("render", "video")
    assert image.users == (Account("me", 1000, ("render",)),)
    assert image.units == {"a.service": "enable", "b.service": "mask", "c.timer": "mask"}


@pytest.mark.parametrize(
    "inputs",
    [
        {"users": {"me": [1]}}, {"users": 3}, {"groups": []}, {"units": {"enable": "x"}},
        {"users": {"me": ["no number", "", "", [], ""]}}, {"users": {"me": [1, "", "", "x"]}},
    ],
)  # fmt: skip
def test_a_declaration_of_another_shape_is_an_input_error(inputs: Mapping[str, object]) -> None:
    image = declaring(inputs)
    with pytest.raises(InputError, match="is damaged"):
        assert not (image.users, image.groups, image.units)


@pytest.mark.parametrize(
    "changed",
    [
        {"base": "x\x1b]0;x\x07"},
        {"suite": "x\x7f"},
        {"kernel": replace(IMAGE.kernel, release="x\ny")},
        {"kernel": replace(IMAGE.kernel, release="x\x9b31m")},
        {"boot": replace(IMAGE.boot, cmdline=("quiet\nshell",))},
        {"boot": replace(IMAGE.boot, cmdline=("x\0",))},
    ],
)
def test_no_text_of_a_manifest_changes_a_terminal(changed: Mapping[str, Any]) -> None:
    """It may come from another builder."""
    with pytest.raises(InputError, match="should match pattern"):
        decode_image(encode_image(replace(IMAGE, **changed)), "manifest.json")


def test_a_manifest_takes_no_more_memory_than_it_needs() -> None:
    """Whoever lists releases has all of their manifests in memory."""
    layer = {"title": "t", "digest": "d", "size": 1, "files": 1, "inputs": {"a": [{}] * 600_000}}
    with pytest.raises(InputError, match="it holds more than 500000 values"):
        decode_image(json.dumps({**MANIFEST, "layers": [layer]}), "manifest.json")
