# SPDX-License-Identifier: Apache-2.0
"""Profiles on another base or by another engine: `generic.ubuntu-noble`, `generic.mkosi`.

Such a name is a profile like any other: it has a lock, images, releases and channels of its own.
A recipe file of exactly that name wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.package_managers import ENGINES
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.read import shown_path
from imagebuilder.recipe.rules import NAME
from imagebuilder.settings import Settings

YAML = ".yaml"
LISTED = "run imagebuilder profiles to list all profiles"


@dataclass(frozen=True)
class Variant:
    """The parts of a profile's name; `base` and `engine` are "" if they are the recipe's own."""

    recipe: str
    base: str = ""
    engine: str = ""

    @property
    def profile(self) -> str:
        return ".".join(part for part in (self.recipe, self.base, self.engine) if part)

    def described(self, description: str) -> str:
        """The recipe's description with the other base and engine."""
        words = [f"on {self.base}"] if self.base else []
        words += [f"first layer by {self.engine}"] if self.engine else []
        return ", ".join([description, *words] if description else words)


def load_variant(profile: str, settings: Settings, faults: list[Fault]) -> Variant | None:
    """The recipe, base and engine in a profile's name; None, with a fault, if it is unknown."""
    recipes = settings.find_recipes()
    if found := find_variant(profile, settings):
        check_file_name(recipes[found.recipe], settings, faults)
        if found.base:
            check_file_name(settings.find_bases()[found.base], settings, faults)
        return found
    heads = [name for name in recipes if profile.startswith(f"{name}.")]
    where = shown_path(settings.recipes, settings)
    if heads and not profile.endswith(YAML):
        faults.append(Fault(where, *rest_problem(max(heads, key=len), profile, settings)))
    else:
        what = f"no profile named {quote(profile)}"
        faults.append(Fault(where, what, profile_hint(profile, recipes)))
    return None


def find_variant(profile: str, settings: Settings) -> Variant | None:
    """The recipe of that name, else the longest one that the name starts with."""
    recipes = settings.find_recipes()
    if profile in recipes:
        return Variant(profile)
    heads = (name for name in recipes if profile.startswith(f"{name}."))
    for recipe in sorted(heads, key=len, reverse=True):
        rest = profile.removeprefix(f"{recipe}.")
        if found := parse_rest(recipe, rest, settings.find_bases()):
            return found
    return None


def check_file_name(path: Path, settings: Settings, faults: list[Fault]) -> None:
    """A fault for a recipe or base whose file name cannot be part of an image's name."""
    if not NAME.pattern.fullmatch(path.stem):
        where = shown_path(path, settings)
        faults.append(Fault(where, f"{quote(path.stem)} is not {NAME.what}", "rename the file"))


def parse_rest(recipe: str, rest: str, bases: Iterable[str]) -> Variant | None:
    """The variant of a recipe by the rest of its name: BASE, ENGINE or BASE.ENGINE."""
    known = tuple(bases)
    if rest in known:
        return Variant(recipe, base=rest)
    if rest in ENGINES:
        return Variant(recipe, engine=rest)
    base, _, engine = rest.rpartition(".")
    return Variant(recipe, base, engine) if base in known and engine in ENGINES else None


def rest_problem(recipe: str, profile: str, settings: Settings) -> tuple[str, str]:
    """What and hint for a name that starts with a recipe's but does not name a variant."""
    words = [*settings.find_bases(), *ENGINES]
    rest = profile.removeprefix(f"{recipe}.").split(".")
    if unknown := [word for word in rest if word not in words]:
        what = f"{quote(profile)}: no base or engine named {quote(unknown[0])}"
        return what, suggest(unknown[0], words)
    forms = ", ".join(f"{recipe}.{form}" for form in ("BASE", "ENGINE", "BASE.ENGINE"))
    return f"{quote(profile)} is not one of {forms}", ""


def profile_hint(profile: str, recipes: Iterable[str]) -> str:
    names = list(recipes)
    if (file := Path(profile)).suffix == YAML and file.stem in names:
        return f"did you mean {quote(file.stem)}?"
    head, dot, rest = profile.partition(".")
    if dot and (near := suggest(head, names, closest=True)):
        return near.replace('"?', f'{dot}{rest}"?')
    return suggest(profile, names) or LISTED


def choose_profile(profile: str, settings: Settings, base: str = "", engine: str = "") -> str:
    """The name of `profile` on another base, by another engine; with neither, `profile` itself.

    Raises InputError if a name is unknown, or `profile` already has another base or engine.
    """
    if not (base or engine):
        return profile
    faults: list[Fault] = []
    variant = load_variant(profile, settings, faults)
    for option, name, known in (
        ("base", base, settings.find_bases()), ("engine", engine, ENGINES),
    ):  # fmt: skip
        if name and name not in known:
            what = f"no {option} named {quote(name)}"
            faults.append(Fault(f"--{option}", what, suggest(name, known)))
        named = str(getattr(variant, option, ""))
        if name and named not in {"", name}:
            what = f"{quote(profile)} already names the {option} {named}"
            faults.append(Fault(f"--{option}", what, "remove one of the two"))
    if variant is None or faults:
        raise InputError.of(faults)
    return replace(variant, base=base or variant.base, engine=engine or variant.engine).profile


def offer_profiles(incomplete: str, settings: Settings) -> list[str]:
    """Shell completion of a profile: recipes, and their variants after `RECIPE.`."""
    recipes = list(settings.find_recipes())
    offered = set(recipes)
    for recipe in recipes:
        if incomplete.startswith(f"{recipe}."):
            bases = settings.find_bases()
            offered |= {f"{recipe}.{part}" for part in (*bases, *ENGINES)}
            offered |= {f"{recipe}.{base}.{engine}" for base in bases for engine in ENGINES
                        if incomplete.startswith(f"{recipe}.{base}.")}  # fmt: skip
    return sorted(name for name in offered if name.startswith(incomplete))
