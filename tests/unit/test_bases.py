# SPDX-License-Identifier: Apache-2.0
"""Every shipped profile on every shipped base: resolved, or refused with a reason.

docs/bases.md has the table of it, which must be true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings
from tests.unit.test_shipped_recipes import CHECKOUT, KEY

Matrix = Mapping[tuple[str, str], Recipe | InputError]
NO_KEY = "the vendor's key is missing"
REFUSED = re.compile(r"recipes/[a-z0-9.-]+\.yaml:\d+:\d+")


def settings(folder: Path) -> Settings:
    """The shipped project, with a site file of one ssh key."""
    site = folder / "site.yaml"
    site.write_text(f"ssh-keys: ['{KEY}']\n")
    return Settings(CHECKOUT, folder / "state", folder / "cache", site)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """What became of each profile on each base."""
    folder = tmp_path_factory.mktemp("matrix")
    place = settings(folder)
    found: dict[tuple[str, str], Recipe | InputError] = {}
    for profile in place.find_recipes():
        for base in place.find_bases():
            try:
                recipe = load_recipe(f"{profile}.{base}", place, env={"HOME": str(folder)})
            except InputError as error:
                found[profile, base] = error
            else:
                found[profile, base] = recipe
    return found


def test_what_is_refused_says_why_and_what_instead(matrix: Matrix) -> None:
    for name, found in matrix.items():
        if isinstance(found, InputError):
            for fault in found.faults:
                if NO_KEY in fault.what:  # which the person downloads
                    continue
                assert REFUSED.fullmatch(fault.where), (name, str(fault))
                pattern = r"overlays\[\d+\]: \".*\" cannot be used on ([a-z]+|rocky 9): "
                assert re.match(pattern, fault.what), name
                assert fault.hint, name


def test_every_profile_is_possible_on_its_own_base(matrix: Matrix, tmp_path: Path) -> None:
    place = settings(tmp_path)
    for profile in place.find_recipes():
        own = load_recipe(profile, place, env={"HOME": str(tmp_path)})
        on_base = matrix[profile, own.base.name]
        assert isinstance(on_base, Recipe)
        assert on_base.overlays[0].packages == own.overlays[0].packages
    assert all(isinstance(matrix["minimal", base], Recipe) for base in place.find_bases())


def test_no_name_of_debian_alone_is_asked_of_ubuntu(matrix: Matrix) -> None:
    for (_, base), found in matrix.items():
        if base.startswith("ubuntu-") and isinstance(found, Recipe):
            overlays = [name for overlay in found.overlays for name in overlay.packages]
            asked = {*found.base.packages, found.base.kernel, *overlays}
            assert not {name for name in asked if name.startswith("firmware-")}, base
            assert "linux-image-amd64" not in asked
            assert ("systemd-resolved" in asked) == (base != "ubuntu-jammy")
            [security, archive] = found.base.sources
            suite = found.base.suite
            assert security.suites == (f"{suite}-security",)
            assert archive.suites == (suite, f"{suite}-updates")


def test_the_page_has_the_matrix(matrix: Matrix) -> None:
    text = (CHECKOUT / "docs/bases.md").read_text()
    rows = [
        [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        for line in text.partition("## Which profile on which base")[2]
        .split("\n## ")[0]
        .splitlines()
        if line.startswith("|")
    ]
    head, _, *body = rows
    bases = head[1:]
    told = {(row[0], base): row[n] for row in body for n, base in enumerate(bases, 1)}
    assert told.keys() == matrix.keys()
    for name, cell in told.items():
        assert (cell == "yes") == isinstance(matrix[name], Recipe), name


def test_what_the_page_tells_to_do_for_a_refused_base(tmp_path: Path) -> None:
    """The recipe of docs/bases.md: a refused profile, with another value of one var."""
    text = (CHECKOUT / "docs/bases.md").read_text()
    recipe = re.search(r"```yaml\n(# recipes/a770-resolute\.yaml\n.*?)```", text, re.DOTALL)
    assert recipe
    for name in ("recipes", "overlays"):
        (tmp_path / "project").mkdir(exist_ok=True)
        (tmp_path / "project" / name).mkdir()
        for path in (CHECKOUT / name).iterdir():
            (tmp_path / "project" / name / path.name).symlink_to(path)
    (tmp_path / "project/recipes/a770-resolute.yaml").write_text(recipe[1])
    shipped = settings(tmp_path)
    place = Settings(tmp_path / "project", shipped.state, shipped.cache, shipped.site)
    found = load_recipe("a770-resolute", place, env={"HOME": str(tmp_path)})
    names = [name for overlay in found.overlays for name in overlay.packages]
    assert {"linux-firmware-intel-graphics", "libggml0-backend-vulkan"} <= set(names)
    assert found.base.kernel == "linux-image-generic-hwe-26.04"
