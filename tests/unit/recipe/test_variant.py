# SPDX-License-Identifier: Apache-2.0
"""Profiles on another base or by another engine: what a name means, and what it cannot mean."""

from __future__ import annotations

import pytest

from imagebuilder.errors import InputError
from imagebuilder.package_managers import ENGINES
from imagebuilder.recipe.find import find_profiles
from imagebuilder.recipe.variant import choose_profile, offer_profiles
from tests.unit.recipe.conftest import HERE, Project

TRIXIE = (HERE / "base" / "debian-trixie.yaml").read_text()
OVERLAY = """\
description: An overlay of the tests
packages: ["on-{{ suite }}"]
"""


@pytest.fixture
def variants(project: Project) -> Project:
    """A project with two bases and the profiles p (on trixie) and p.q."""
    project.write(
        {
            "recipes/bases/other-noble.yaml": TRIXIE.replace("suite: trixie", "suite: noble"),
            "recipes/p.yaml": "description: The profile\nbase: debian-trixie\noverlays: [a]\n",
            "recipes/p.q.yaml": "base: debian-trixie\n",
            "overlays/a/overlay.yaml": OVERLAY,
        }
    )
    return project


@pytest.mark.parametrize(
    ("profile", "base", "engine", "description"),
    [
        ("p", "debian-trixie", "mmdebstrap", "The profile"),
        ("p.other-noble", "other-noble", "mmdebstrap", "The profile, on other-noble"),
        ("p.debian-trixie", "debian-trixie", "mmdebstrap", "The profile, on debian-trixie"),
        (
            "p.debootstrap",
            "debian-trixie",
            "debootstrap",
            "The profile, first layer by debootstrap",
        ),
        (
            "p.other-noble.debootstrap",
            "other-noble",
            "debootstrap",
            "The profile, on other-noble, first layer by debootstrap",
        ),
        ("p.q", "debian-trixie", "mmdebstrap", ""),
        ("p.q.other-noble", "other-noble", "mmdebstrap", "on other-noble"),
    ],
)
def test_a_name_says_base_and_engine(
    variants: Project, profile: str, base: str, engine: str, description: str
) -> None:
    recipe = variants.load(profile)
    assert recipe.profile == profile
    assert recipe.description == description
    assert (recipe.base.name, recipe.base.engine) == (base, engine)


def test_overlays_are_rendered_for_the_base_that_counts(variants: Project) -> None:
    assert variants.load("p").overlays[0].packages == ("on-trixie",)
    assert variants.load("p.other-noble").overlays[0].packages == ("on-noble",)


def test_a_recipe_file_of_exactly_that_name_wins(variants: Project) -> None:
    variants.write({"recipes/p.other-noble.yaml": "description: My own\nbase: debian-trixie\n"})
    assert variants.load("p.other-noble").description == "My own"
    assert variants.load("p.other-noble").base.name == "debian-trixie"
    assert variants.load("p.other-noble.debootstrap").base.name == "debian-trixie"
    assert variants.load("p.other-noble.other-noble").base.name == "other-noble"


def test_a_recipe_needs_no_base_of_its_own(variants: Project) -> None:
    variants.write({"recipes/bare.yaml": "description: Bare\n"})
    assert variants.load("bare.other-noble").base.name == "other-noble"
    assert 'the key "base" is missing' in variants.faults("bare")


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("p.other-nobel", '"p.other-nobel": no base or engine named "other-nobel"\n  hint: did '
         'you mean "other-noble"?'),
        ("p.other-noble.debotstrap", '"p.other-noble.debotstrap": no base or engine named '
         '"debotstrap"\n  hint: did you mean "debootstrap"?'),
        ("p.debootstrap.other-noble", 'is not one of p.BASE, p.ENGINE, p.BASE.ENGINE'),
        ("p.other-noble.other-noble", 'is not one of p.BASE, p.ENGINE, p.BASE.ENGINE'),
        ("p.", 'no base or engine named ""'),
        ("p.other-noble.", 'no base or engine named ""'),
        ("p.q.", '"p.q.": no base or engine named ""'),
        ("P.other-noble", 'no profile named "P.other-noble"'),
        (".other-noble", 'no profile named ".other-noble"'),
        ("../p.other-noble", 'no profile named "../p.other-noble"'),
        ("other-noble", 'no profile named "other-noble"'),
    ],
)  # fmt: skip
def test_what_a_name_cannot_mean(variants: Project, profile: str, said: str) -> None:
    assert said in variants.faults(profile)


def test_a_misspelt_recipe_of_a_variant(variants: Project) -> None:
    variants.write({"recipes/generic.yaml": "base: debian-trixie\n"})
    assert 'did you mean "generic.other-noble"?' in variants.faults("generix.other-noble")


def test_options_make_the_name(variants: Project) -> None:
    settings = variants.settings
    assert choose_profile("p", settings) == "p"
    assert choose_profile("p", settings, "other-noble") == "p.other-noble"
    assert choose_profile("p", settings, "", "debootstrap") == "p.debootstrap"
    assert choose_profile("p.debootstrap", settings, "other-noble") == "p.other-noble.debootstrap"
    assert choose_profile("p.other-noble", settings, "other-noble") == "p.other-noble"
    # Without options nothing is judged: an image may be of a recipe that is gone.
    assert choose_profile("gone", settings) == "gone"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("p", "other-nobel"), '--base: no base named "other-nobel"\n  hint: did you mean'),
        (("p", "", "mkosy"), '--engine: no engine named "mkosy"'),
        (("p", "debootstrap"), '--base: no base named "debootstrap"'),
        (("p.debian-trixie", "other-noble"), '"p.debian-trixie" already names the base debian-t'),
        (("p.debootstrap", "", "mmdebstrap"), "already names the engine debootstrap"),
        (("x", "other-noble"), 'no profile named "x"'),
    ],
)
def test_options_that_mean_nothing(variants: Project, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError) as caught:
        choose_profile(words[0], variants.settings, *words[1:])
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_shell_is_offered_variants_once_a_recipe_is_written(variants: Project) -> None:
    settings = variants.settings
    assert offer_profiles("", settings) == ["p", "p.q"]
    assert offer_profiles("p.o", settings) == ["p.other-noble"]
    assert offer_profiles("p.", settings) == sorted(
        ["p.debian-trixie", "p.other-noble", "p.q", *(f"p.{engine}" for engine in ENGINES)]
    )
    assert offer_profiles("p.other-noble.", settings) == [
        f"p.other-noble.{engine}" for engine in sorted(ENGINES)
    ]
    assert offer_profiles("x.", settings) == []


def test_only_recipes_are_listed(variants: Project) -> None:
    assert [found.name for found in find_profiles(variants.settings)] == ["p", "p.q"]
