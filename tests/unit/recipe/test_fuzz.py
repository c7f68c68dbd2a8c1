# SPDX-License-Identifier: Apache-2.0
"""Whatever a file holds: a recipe or an InputError, never anything else."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imagebuilder.digest import canonical_json
from imagebuilder.errors import InputError
from imagebuilder.recipe.model import BaseFile, OverlayFile, RecipeFile, SiteFile
from imagebuilder.recipe.positions import parse_document
from tests.unit.recipe.conftest import House, make_house

# Pieces that YAML, the models and Jinja2 give a meaning.
PIECES = (
    "a", "b", "- ", ": ", "\n", "\n  ", "[", "]", "{", "}", ",", "&x ", "*x", "!!str ", "|", ">",
    "%", "? ", "'", '"', "\\", "#", "~", "1", "1.5", "true", "---", "...", "{{ a }}", "{% if %}",
    "<<", "\t", "\r", "\x00", "\u2028", "\ufeff", "é", "..", "/", "base", "overlays", "vars",
)  # fmt: skip
KEYS = tuple(
    field.alias or name
    for model in (RecipeFile, BaseFile, OverlayFile, SiteFile)
    for name, field in model.model_fields.items()
)
TEXTS = st.sampled_from(
    (
        "a",
        "",
        "p",
        "../x",
        "/etc/x",
        "{{ a }}",
        "{{ nope }}",
        "{% if %}",
        "files",
        "ssh",
        "1002:7480",
    )
) | st.text(max_size=8)  # fmt: skip
NAMES = st.sampled_from((*KEYS, "name", "when", "type", "run"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(NAMES | TEXTS, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
FILES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)
BOUNDED = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@BOUNDED
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=40))
def test_any_text(text: str) -> None:
    with contextlib.suppress(InputError):
        document = parse_document(text.encode(errors="surrogatepass"), "f.yaml")
        json.dumps(document.value).encode()


@BOUNDED
@given(recipe=FILES, overlay=FILES, site=FILES, base=FILES)
def test_any_values(
    recipe: Mapping[str, object],
    overlay: Mapping[str, object],
    site: Mapping[str, object],
    base: Mapping[str, object],
) -> None:
    sound = {"description": "An overlay of the tests"}
    with tempfile.TemporaryDirectory() as folder:
        house = House(make_house(Path(folder) / "house"))
        house.write(
            {
                # JSON is YAML; what one file has wrong must not hide what another one has.
                "recipes/p.yaml": json.dumps(
                    {"base": "debian-trixie", "overlays": ["a", "b"], **recipe}
                ),
                "recipes/a.yaml": json.dumps(recipe),
                "recipes/bases/b.yaml": json.dumps(base),
                "overlays/a/overlay.yaml": json.dumps({**sound, **overlay}),
                "overlays/b/overlay.yaml": json.dumps({**overlay, **sound}),
                "site.yaml": json.dumps(site),
            }
        )
        with contextlib.suppress(InputError):
            canonical_json(dataclasses.asdict(house.load())["vars"])
