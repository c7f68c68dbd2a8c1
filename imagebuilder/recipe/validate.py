# SPDX-License-Identifier: Apache-2.0
"""Validate a Document against its pydantic model; every error is a Fault with its position."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Annotated, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from imagebuilder.errors import Fault
from imagebuilder.phrases import listing, quote, suggest
from imagebuilder.recipe.positions import Document, KeyPath, Yaml
from imagebuilder.recipe.rules import RULES
from imagebuilder.secret import hidden

ModelT = TypeVar("ModelT", bound=BaseModel)

# What pydantic's type errors mean in the words of YAML.
EXPECTED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
# The description of each pattern in a model.
ALLOWED: Mapping[str, str] = {rule.whole: rule.what for rule in RULES}


def parse_model(
    model: type[ModelT], document: Document, faults: list[Fault]
) -> tuple[ModelT | None, bool]:
    """The model of `document`, and whether it has everything in it.

    What does not fit is added to `faults` and left out of the model, so that the same run finds
    later faults too; the model is None if too little is left.  Lists are left out as a whole:
    without an item, the positions of those after it would be wrong.
    """
    try:
        return model.model_validate(document.value), True
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        faults.extend(model_faults(model, document, details))
        paths = [detail["loc"] for detail in details]
    for depth in (2, 1):
        try:
            return model.model_validate(without(document.value, paths, depth)), False
        except ValidationError:  # a required key is among the wrong ones
            continue
    return None, False


def without(value: dict[str, Yaml], paths: Iterable[KeyPath], depth: int) -> dict[str, Yaml]:
    """A mapping without the values at the first `depth` keys of each path, or lists around them."""
    rest: dict[str, Yaml] = {}
    for key, inside in value.items():
        below = [path[1:] for path in paths if path[0] == key]
        if not below:
            rest[key] = inside
        elif depth > 1 and isinstance(inside, dict) and all(below):
            rest[key] = without(inside, below, depth - 1)
    return rest


def model_faults(
    model: type[BaseModel], document: Document, details: Iterable[ErrorDetails]
) -> list[Fault]:
    """One fault for each wrong path, even if several types were tried there."""
    by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in details:
        by_path.setdefault(real_path(detail, document.value), []).append(detail)
    faults = []
    for path, group in by_path.items():
        wrong_types = [detail for detail in group if detail["type"] in EXPECTED]
        others = [detail for detail in group if detail["type"] not in EXPECTED]
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in by_path)
        if wrong_types and not others and not deeper:
            faults.append(type_fault(document, path, wrong_types))
        faults.extend(value_fault(model, document, path, detail) for detail in others)
    return faults


def real_path(detail: ErrorDetails, value: Yaml) -> KeyPath:
    """The path of an error, without the names of union members and `[key]` that pydantic adds."""
    path: list[str | int] = []
    for step in detail["loc"]:
        if inside := step_into(value, step):
            path.append(step)
            value = inside[0]
    return (*path, detail["loc"][-1]) if detail["type"] == "missing" else tuple(path)


def step_into(value: Yaml, step: str | int) -> tuple[Yaml, ...]:
    """A tuple with the value at `step`; empty if there is none."""
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        return (value[step],)
    if isinstance(value, list) and isinstance(step, int):
        return (value[step],)
    return ()


def type_fault(document: Document, path: KeyPath, group: list[ErrorDetails]) -> Fault:
    words = list(dict.fromkeys(EXPECTED[detail["type"]] for detail in group))
    expected = " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
    found = group[0]["input"]
    hint = ""
    if "text" in words and isinstance(found, bool | int | float):
        hint = f'quote it: "{document.mark(path).raw}"'
    return document.fault(path, f"expected {expected}, found {found_words(found)}", hint)


def found_words(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    return "a list" if isinstance(value, list) else "a mapping"


def value_fault(
    model: type[BaseModel], document: Document, path: KeyPath, detail: ErrorDetails
) -> Fault:
    """The fault for everything but a wrong type."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(path[-1])
        hint = find_place(model, key) if len(path) == 1 else ""
        hint = hint or suggest(key, known_keys(model, path[:-1]))
        return document.fault(path, "unknown key", hint, of_key=True)
    if kind == "missing":
        return document.fault(path[:-1], f"the key {quote(str(path[-1]))} is missing")
    if kind == "literal_error":
        allowed = [str(v) for part in annotations_at(model, path) for v in get_args(part)]
        what = f"{quote(str(detail['input']))} is not one of {listing(allowed)}"
        return document.fault(path, what, suggest(str(detail["input"]), allowed, closest=True))
    of_key = detail["loc"][-1] == "[key]"
    what = {
        # What is no address may have a password in it all the same.
        "string_pattern_mismatch": f"{quote(hidden(str(detail['input'])))} is not "
        f"{ALLOWED.get(str(context.get('pattern')))}",
        "string_too_short": f"must be at least {context.get('min_length')} characters long",
        "string_too_long": f"must be at most {context.get('max_length')} characters long",
        "too_short": f"must have at least {context.get('min_length')} "
        f"{'item' if context.get('min_length') == 1 else 'items'}",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than_equal": f"must be at most {context.get('le')}",
    }.get(kind, detail["msg"])
    return document.fault(path, what, of_key=of_key)


def find_place(model: type[BaseModel], key: str) -> str:
    """A hint for a key that belongs below another key of the same file, or into another file."""
    found = []
    for name, field in model.model_fields.items():
        parts = annotations_at(field.annotation, ())
        if any(isinstance(part, type) and key in known_keys(part, ()) for part in parts):
            found.append(f"below {quote(field.alias or name)}")
    # A command that reads a correct nodes.yaml does without these models: a tenth of a second.
    from imagebuilder.recipe.model import OverlayFile, RecipeFile, SiteFile

    places: Mapping[type[BaseModel], str] = {
        OverlayFile: "overlays/NAME/overlay.yaml of an overlay that the recipe lists",
        RecipeFile: "the recipe, recipes/PROFILE.yaml",
        SiteFile: "the site file, ~/.config/imagebuilder/site.yaml",
    }
    for other, place in places.items() if model in places else ():
        if key in known_keys(other, ()):
            found.append(f"into {place}")
    return f"write it {', or '.join(found)}" if found else ""


def known_keys(annotation: object, path: KeyPath) -> list[str]:
    """The keys that a mapping at `path` may have, sorted; empty if any key is allowed."""
    keys: set[str] = set()
    for part in annotations_at(annotation, path):
        if isinstance(part, type) and issubclass(part, BaseModel):
            keys |= {field.alias or name for name, field in part.model_fields.items()}
    return sorted(keys)


def annotations_at(annotation: object, path: KeyPath) -> list[object]:
    """Every type that a value at `path` below `annotation` may have; unions are expanded."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return annotations_at(get_args(annotation)[0], path)
    if origin in {Union, types.UnionType}:
        return [part for arg in get_args(annotation) for part in annotations_at(arg, path)]
    if not path:
        return [annotation]
    if origin in {list, dict}:
        return annotations_at(get_args(annotation)[-1], path[1:])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if (field.alias or name) == path[0]:
                return annotations_at(field.annotation, path[1:])
    return []
