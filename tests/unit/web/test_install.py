# SPDX-License-Identifier: Apache-2.0
"""The units of the page: what each is given, and what it is not."""

from __future__ import annotations

from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from imagebuilder.notify.receivers import Credential
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.interface import Interface
from imagebuilder.serve.options import Nfs
from imagebuilder.tree import Tree
from imagebuilder.web import install
from imagebuilder.web.install import WebUnits

TREE = Tree(Path("/srv/netboot"))
WIRE = Interface("wire0", "52:54:00:00:00:01", IPv4Interface("10.77.0.1/24"))
CONFIG = ServeConfig(TREE, WIRE, TREE.serve / "installed", Nfs.GANESHA, ())
TOKENS, SITE = Path("/etc/imagebuilder/tokens.json"), Path("/root/100% site.yaml")
CHAT = Credential("notify-chat", Path("/root/web%hook"))


@pytest.fixture(autouse=True)
def no_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host may have no ip(8), and its addresses are nobody's business here."""
    monkeypatch.setattr(install, "find_networks", lambda _: ())


def units(site: Path | None, *credentials: Credential) -> dict[str, list[str]]:
    """The lines of each unit by its name."""
    made = WebUnits("127.0.0.1:8470", Path("/var/reports"), TOKENS, site, credentials).make(CONFIG)
    return {unit.path.name: unit.text.splitlines() for unit in made}


def given(lines: list[str], key: str) -> list[str]:
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


def test_the_page_alone_gets_copies_of_files_of_root() -> None:
    found = units(SITE, CHAT)
    page = found.pop("imagebuilder-web.service")
    assert given(page, "LoadCredential") == [
        "notify-chat:/root/web%%hook", "site.yaml:/root/100%% site.yaml",
    ]  # fmt: skip
    copied = "IMAGEBUILDER_SITE=/run/credentials/imagebuilder-web.service/site.yaml"
    assert f'"{copied}"' in given(page, "Environment")
    for name, lines in found.items():
        assert not [x for x in lines if "Credential" in x or "site.yaml" in x], name


def test_without_a_site_file_there_is_no_copy_of_one() -> None:
    page = units(None)["imagebuilder-web.service"]
    assert given(page, "LoadCredential") == []
    assert not [line for line in page if "IMAGEBUILDER_SITE" in line]


@pytest.mark.parametrize(
    ("unit", "told"), [("web", True), ("act@", True), ("read@", False)]
)  # fmt: skip
def test_who_must_know_of_tokens_does(unit: str, *, told: bool) -> None:
    environment = given(units(SITE)[f"imagebuilder-{unit}.service"], "Environment")
    assert (f'"IMAGEBUILDER_TOKENS={TOKENS}"' in environment) is told
