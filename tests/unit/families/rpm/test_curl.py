# SPDX-License-Identifier: Apache-2.0
"""What curl is told on its standard input, and what it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.rpm.curl import Transfer, fetch_files, quoted, render_config
from tests.fixtures.aptrepo import Plant
from tests.unit.families.rpm.conftest import RpmSite

pytestmark = pytest.mark.slow


def test_a_value_stays_one_value() -> None:
    assert quoted('a "b" \\n') == '"a \\"b\\" \\\\n"'
    for text in ("a\nurl = b", "a\rb", "a\0b"):
        with pytest.raises(WorkError, match="has a line end"):
            quoted(text)


def test_an_address_with_quotes_and_backslashes_is_asked_for(site: RpmSite, tmp_path: Path) -> None:
    (site.folder / 'a"b\\n[1-3]{x}').write_text("odd")
    path = tmp_path / 'o"ut\\t'
    assert not fetch_files([Transfer(f"{site.server.uri}/a%22b%5Cn[1-3]{{x}}", path)])
    assert path.read_text() == "odd"


def test_https_never_becomes_http() -> None:
    text = render_config(
        [Transfer("https://a/b", Path("/c")), Transfer("http://a/b", Path("/d"))], 2
    )
    first, second = text.split("next\n")
    assert 'proto-redir = "=https"\n' in first
    assert 'proto-redir = "=http,https"\n' in second
    assert "parallel-max = 2\n" in first


def test_a_file_is_read_only_from_where_the_address_says(site: RpmSite, tmp_path: Path) -> None:
    (site.folder / "secret").write_text("x")
    address = f"file://{site.folder}/secret"
    assert not fetch_files([Transfer(address, tmp_path / "a")])
    config = render_config([Transfer(site.server.uri, tmp_path / "b")], 1)
    assert 'proto = "=http,https"\n' in config  # no redirection leads to a file


def test_what_may_pass_is_tried_again(site: RpmSite, tmp_path: Path) -> None:
    site.server.plant("x", Plant.UNAVAILABLE)
    site.server.plant("y", Plant.MISSING)
    transfers = [Transfer(f"{site.server.uri}/{name}", tmp_path / name) for name in "xy"]
    found = fetch_files(transfers)
    assert {path.name: fault.status for path, fault in found.items()} == {"x": 503, "y": 404}
    assert (site.server.asked.count("x"), site.server.asked.count("y")) == (3, 1)
