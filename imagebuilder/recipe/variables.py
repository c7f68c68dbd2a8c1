# SPDX-License-Identifier: Apache-2.0
"""The vars of a profile: what its overlays declare, and the value each one gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from imagebuilder.errors import Fault
from imagebuilder.phrases import listing, quote, suggest
from imagebuilder.recipe.keys import KEYS_VAR, ssh_key_problem
from imagebuilder.recipe.model import VarModel
from imagebuilder.recipe.model_words import VarValue
from imagebuilder.recipe.part import Part
from imagebuilder.recipe.patterns import pattern_problem
from imagebuilder.recipe.positions import Origin
from imagebuilder.recipe.render import RESERVED
from imagebuilder.recipe.resolve import Merged, VarSetting
from imagebuilder.recipe.validate import found_words

PYTHON_TYPES: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "list": list}
TYPE_WORDS: Mapping[str, str] = {
    "string": "text",
    "integer": "a whole number",
    "boolean": "true or false",
    "list": "a list of text",
}
EMPTY: Mapping[str, VarValue] = {"string": "", "integer": 0, "boolean": False, "list": []}
KEYS_HINT = "add a public key under ssh-keys: in {site}, or make one with ssh-keygen -t ed25519"


@dataclass(frozen=True)
class DeclaredVar:
    """A var with the overlay that declares it; `sound` if the declaration is valid."""

    part: Part
    model: VarModel
    sound: bool

    @property
    def default(self) -> VarSetting | None:
        """The default as a setting without an origin."""
        return None if self.model.default is None else VarSetting(self.model.default, None)


@dataclass(frozen=True)
class Values:
    """The values of vars; those in `unsure` are invalid and have an empty value of their type."""

    known: Mapping[str, VarValue]
    unsure: frozenset[str]


def declare_vars(parts: Iterable[Part], faults: list[Fault]) -> dict[str, DeclaredVar]:
    """Every var of the overlays; reports invalid and contradictory declarations."""
    declared: dict[str, DeclaredVar] = {}
    for part in parts:
        for name, model in part.file.vars.items():
            sound = check_declaration(name, part, model, faults)
            first = declared.setdefault(name, DeclaredVar(part, model, sound))
            if first.model != model.model_copy(update={"description": first.model.description}):
                what = f"the overlay {quote(first.part.name)} declares this var differently"
                hint = "rename it, or declare it the same way"
                faults.append(part.document.fault(("vars", name), what, hint, of_key=True))
    return declared


def check_declaration(name: str, part: Part, model: VarModel, faults: list[Fault]) -> bool:
    """Whether the name is free, the pattern is valid and the default is an allowed value."""
    path = ("vars", name)
    if name in RESERVED:
        what, hint = "this name has a meaning in templates", f"call it {part.name}_{name}"
        faults.append(part.document.fault(path, what, hint.replace("-", "_"), of_key=True))
        return False
    if model.default is None:
        return True
    # `min_items` is checked in use: an empty default means that somebody must choose.
    what = value_problem(model.model_copy(update={"min_items": 0}), model.default)
    if what:
        faults.append(part.document.fault((*path, "default"), what))
    return not what


def value_problem(model: VarModel, value: VarValue) -> str:
    """Why a var may not have this value; empty if it may."""
    if type(value) is not PYTHON_TYPES[model.type]:
        return f"expected {TYPE_WORDS[model.type]}, found {found_words(value)}"
    items = [str(item) for item in value] if isinstance(value, list) else [str(value)]
    if isinstance(value, list) and len(value) < model.min_items:
        return f"needs at least {model.min_items} {'item' if model.min_items == 1 else 'items'}"
    for item in items:
        if model.choices and item not in model.choices:
            return f"{quote(item)} is not one of {listing(model.choices)}"
    return pattern_problem(model.pattern, tuple(items)) if model.pattern else ""


def choose_values(
    declared: Mapping[str, DeclaredVar],
    settings: Mapping[str, VarSetting],
    merged: Merged,
    faults: list[Fault],
    *,
    site_file: str,
    all_known: bool,
) -> Values:
    """The value of every declared var: that in `settings`, else its default.

    Unless `all_known`, some file that may set vars could not be read: a missing value is no fault.
    """
    known: dict[str, VarValue] = {}
    unsure: set[str] = set()
    for name, declaration in declared.items():
        setting = listed(settings.get(name, declaration.default), declaration.model)
        fault = find_fault(name, declaration, setting, merged, site_file)
        if setting and declaration.sound and not fault:
            known[name] = setting.value
            continue
        # An invalid value is empty for the templates, and what reads it is left out.
        known[name] = EMPTY[declaration.model.type]
        unsure.add(name)
        is_written = setting is not None and setting.origin is not None
        if fault and (all_known or is_written):
            faults.append(fault)
    return Values(known, frozenset(unsure))


def listed(setting: VarSetting | None, model: VarModel) -> VarSetting | None:
    """A setting with a single text converted to a list, if the var allows that."""
    if setting and model.or_text and model.type == "list" and isinstance(setting.value, str):
        return VarSetting([setting.value], setting.origin)
    return setting


def find_fault(
    name: str, declaration: DeclaredVar, setting: VarSetting | None, merged: Merged, site_file: str
) -> Fault | None:
    """The fault of a var's value, at the place that sets it or else that lists its overlay."""
    if not declaration.sound:
        return None
    problem = value_problem(declaration.model, setting.value) if setting else "is not set"
    if setting and setting.origin:
        problem = problem or (key_problem(setting.value) if name == KEYS_VAR else "")
        return setting.origin.fault(problem, declaration.model.description) if problem else None
    if not problem:
        return None
    what = f"var {quote(name)} of overlay {quote(declaration.part.name)} {problem}"
    about = declaration.model.description
    hint = f"set {name} under vars: in the recipe or the site file ({about})"
    if name == KEYS_VAR and not (setting and setting.value):
        what, hint = f"{what}: nobody could log in", KEYS_HINT.format(site=site_file)
    return place_of(declaration.part.name, merged).fault(what, hint)


def key_problem(value: VarValue) -> str:
    """What is wrong with the first damaged key of a list."""
    found = (ssh_key_problem(key) for key in value) if isinstance(value, list) else ()
    return next((f"a key {problem}" for problem in found if problem), "")


def place_of(overlay: str, merged: Merged) -> Origin:
    return next(origin for name, origin in merged.overlays if name == overlay)


def check_declared(
    settings: Mapping[str, VarSetting],
    declared: Mapping[str, DeclaredVar],
    spare: frozenset[str],
    what: str,
) -> list[Fault]:
    """The fault `what` for each setting that no overlay declares, except those in `spare`."""
    return [
        setting.origin.fault(what, suggest(name, declared))
        for name, setting in settings.items()
        if setting.origin and name not in declared and name not in spare
    ]
