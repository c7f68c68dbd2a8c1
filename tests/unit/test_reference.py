# SPDX-License-Identifier: Apache-2.0
"""The reference and the schema are those of the models."""

from __future__ import annotations

import json
import re
from pathlib import Path

from imagebuilder.reference import json_schema, render_reference

CHECKOUT = Path(__file__).parents[2]


def test_the_page_is_fresh() -> None:
    fresh = (CHECKOUT / "docs" / "reference.md").read_text() == render_reference()
    assert fresh, "python -m imagebuilder.reference > docs/reference.md"


def test_every_link_has_its_section() -> None:
    page = render_reference()
    sections = {line.strip("# ").replace(" ", "-") for line in page.splitlines() if line[:1] == "#"}
    links = set(re.findall(r"\(#([^)]+)\)", page))
    assert links
    assert links <= sections


def test_the_schema_is_whole() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["$schema"].endswith("2020-12/schema")
    definitions = schema["$defs"]
    assert {"recipe", "base", "overlay", "site", "nodes"} <= definitions.keys()
    references = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert references <= definitions.keys()
    assert "ssh-keys" in definitions["site"]["properties"]
    assert definitions["overlay"]["additionalProperties"] is False
