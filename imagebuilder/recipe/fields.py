# SPDX-License-Identifier: Apache-2.0
"""From a model of keys to the resolved value: each key by the rule that its annotation names.

    cmdline: Annotated[list[Entry], rules.CMDLINE]  its entries, `when` decided, each a word
    files: Annotated[list[str], rules.GLOB]         templates, each a glob
    path: Annotated[str, rules.PLACE]               a template, a place unless it is left empty
    cuda: Annotated[str, Sometimes(rules.VERSION)]  the same, and it may render to nothing
    allow_cpu: Annotated[str, DECIDES]              an expression
    options: Annotated[dict[str, str], rules.MODULE]  templates of one line, by such a name
    devices: list[DeviceModel]                      each as its own value
    units: UnitsModel                               the same; its default if it is invalid

Keys without a rule are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import TypeVar, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from imagebuilder.phrases import quote
from imagebuilder.recipe.model_words import Model
from imagebuilder.recipe.positions import KeyPath
from imagebuilder.recipe.render import Scope
from imagebuilder.recipe.rules import DECIDES, LINE, Rule, Sometimes

T = TypeVar("T")


def render_fields(kind: type[T], model: Model, path: KeyPath, scope: Scope) -> T | None:
    """The dataclass `kind` from the keys of the same names.

    None if `when` is false, a text is invalid, or a required key renders to nothing.
    """
    if not scope.holds((*path, "when"), getattr(model, "when", "true")):
        return None
    values: dict[str, object] = {}
    sound = True
    dataclass: type = kind
    for name, hint in hints_of(dataclass).items():
        field = type(model).model_fields[name]
        below = (*path, field.alias or name)
        value = getattr(model, name)
        values[name] = None if value is None else render_field(value, field, hint, below, scope)
        sound &= values[name] is not None or value is None
        sound &= not field.is_required() or bool(values[name])
    return kind(**values) if sound else None


@cache
def hints_of(kind: type) -> Mapping[str, object]:
    """The types of a dataclass's fields, which are text until they are evaluated."""
    return get_type_hints(kind)


def render_field(
    value: object, field: FieldInfo, hint: object, path: KeyPath, scope: Scope
) -> object:
    """The value of one key for a field annotated with `hint`; None if invalid."""
    rule = next(
        (m for m in field.metadata if isinstance(m, Rule | Sometimes) or m is DECIDES), None
    )
    if isinstance(value, Model) and isinstance(hint, type) and is_dataclass(hint):
        return render_fields(hint, value, path, scope) or hint()
    if isinstance(value, str):
        text = render_text(value, rule, path, scope)
        return ((text,) if text else ()) if get_origin(hint) is tuple else text
    if isinstance(value, dict) and isinstance(rule, Rule):
        return render_pairs(path, value, scope, rule)
    if not isinstance(value, list):
        return value
    if isinstance(rule, Rule) and field.annotation == list[str]:
        texts = (scope.text((*path, number), text, rule) for number, text in enumerate(value))
        return tuple(text for text in texts if text)
    if isinstance(rule, Rule):
        return scope.entries(path, value, rule)
    inner = get_args(hint)[0]
    return tuple(
        rendered
        for number, each in enumerate(value)
        for one in scopes_of(each, (*path, number), scope)
        if (
            rendered := render_fields(inner, each, (*path, number), one)
            if isinstance(each, Model)
            else each
        )
    )


def scopes_of(value: object, path: KeyPath, scope: Scope) -> Iterable[Scope]:
    """The scope of a model that counts, or one for each element of the list var it names."""
    name = getattr(value, "each", "")
    if name and not scope.holds((*path, "when"), getattr(value, "when", "true")):
        return ()
    return scope.each(path, name)


def render_text(value: str, rule: object, path: KeyPath, scope: Scope) -> str | bool | None:
    """A text by its rule, or whether an expression holds; None if invalid."""
    if rule is DECIDES:
        return scope.holds(path, value)
    if isinstance(rule, Sometimes):
        text = scope.text(path, value)
        return scope.text(path, value, rule.rule) if text else text
    return scope.text(path, value, rule) if value and isinstance(rule, Rule) else value


def render_pairs(
    path: KeyPath, pairs: Mapping[str, str | int], scope: Scope, key_rule: Rule
) -> tuple[tuple[str, str], ...]:
    """A mapping to templates of one line, in the order it is written."""
    rendered: list[tuple[str, str]] = []
    for key, template in pairs.items():
        if not key_rule.pattern.fullmatch(key):
            scope.fault((*path, key), f"{quote(key)} is not {key_rule.what}")
        text = scope.text((*path, key), str(template), LINE)
        if text is not None:
            rendered.append((key, text))
    return tuple(rendered)
