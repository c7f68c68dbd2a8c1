# SPDX-License-Identifier: Apache-2.0
"""Builds at the same time: of one profile and of several, they share layers and all succeed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.changes import change_yaml, leftovers, linked, make_quick, refs
from tests.integration.started import start
from tests.workshop import Workshop

pytestmark = pytest.mark.root


def layers_of(shop: Workshop, profile: str) -> dict[str, str]:
    """The digests of an image's layers by title."""
    layers = json.loads(shop("show", profile, "--json").stdout)["layers"]
    return {layer["title"]: layer["digest"] for layer in layers}


def test_builds_at_once_share_their_layers(workshop: Workshop, tmp_path: Path) -> None:
    shop = linked(workshop, tmp_path)
    base = layers_of(shop, "generic")["base debian-forky"]
    make_quick(shop.project)
    change_yaml(
        shop.project / "recipes/other.yaml",
        {"description": "As generic, but smaller", "extends": "generic", "without": ["llama-cpp"]},
    )
    shop("lock", "other")
    for ref in refs(shop.state).keys() - {f"layer/{base}"}:
        (shop.state / "store/refs/heads" / ref).unlink()

    profiles = ("generic", "other", "generic")
    running = [
        start(shop.argv("build", profile, "--locked"), shop.env(), tmp_path / str(number))
        for number, profile in enumerate(profiles)
    ]
    for build in running:
        assert build.wait(240) == 0, build.stderr
        assert "Traceback" not in build.stderr

    assert leftovers(shop.state) == []
    images = json.loads(shop("images", "--json").stdout)
    assert sorted(image["profile"] for image in images) == ["generic", "other"]
    assert "intact: 2 images" in shop("fsck").stdout
    one, other = layers_of(shop, "generic"), layers_of(shop, "other")
    shared = [title for title in one if one[title] == other.get(title)]
    assert shared == ["base debian-forky", "packages netboot", "initrd", "packages ssh",
                      "packages compute-node"]  # fmt: skip
    said = "\n".join(build.stderr for build in running).splitlines()
    built = Counter(line.partition(": done in")[0] for line in said if ": done in" in line)
    assert "base debian-forky" not in built
    for title in shared[1:]:
        assert built[title] == 1, f"{title} was made more than once\n" + "\n".join(said)
    for title in ("packages llama-cpp", "configure llama-cpp"):
        assert built[title] == 1
    assert any("another build" in line for line in said)
    for profile in ("generic", "other"):
        assert "nothing changed" in shop("build", profile, "--locked").stdout
