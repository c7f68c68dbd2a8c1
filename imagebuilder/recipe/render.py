# SPDX-License-Identifier: Apache-2.0
"""Jinja2 in overlays: sandboxed, strict, and without anything that differs between two builds."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from jinja2 import nodes

from imagebuilder.decode import parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import Fault
from imagebuilder.package_managers import PackageManager, manager_of
from imagebuilder.phrases import quote, suggest
from imagebuilder.process import run
from imagebuilder.recipe.model_words import Entry, Model
from imagebuilder.recipe.positions import Document, KeyPath, Origin
from imagebuilder.recipe.rules import ANY_PACKAGE, PACKAGE, Rule
from imagebuilder.recipe.template import (
    MARKUP,
    MAX_MEMORY,
    MAX_SECONDS,
    TEMPLATE_NAME,
    describe_error,
    environment,
    evaluate,
    is_cheap,
)

# Names that templates have besides the vars; no overlay may declare them.
BASE_NAMES = ("suite", "distribution", "architecture")
BUILT_IN = ("profile", "overlays", *BASE_NAMES)
# Names and operators of Jinja2 itself.
JINJA_WORDS = (
    "and", "dict", "else", "false", "if", "in", "is", "joiner", "loop", "namespace", "none", "not",
    "or", "range", "self", "true",
)  # fmt: skip
# Expressions and statements in a template.
MARKED = re.compile(r"\{\{(?:(?!\{\{).)*?\}\}|\{%(?:(?!\{%).)*?%\}", re.DOTALL)
RESERVED = frozenset((*BUILT_IN, *JINJA_WORDS, "each"))


M = TypeVar("M", bound=Model)


class TemplateProblem(Exception):  # noqa: N818 - turned into a Fault, no person sees it
    """What is wrong with a template, the line in it (from 1), and a hint."""

    def __init__(self, what: str, line: int, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.line, self.hint = what, line, hint


class Unknown(Exception):  # noqa: N818 - a state, not an error: the fault is reported elsewhere
    """The result depends on a var that is invalid."""


@dataclass(frozen=True)
class Renderer:
    """Renders with the vars of one profile.

    `unsure` are vars whose value is invalid; with `partial` not even all names are known, because
    some overlay could not be read.  Whatever depends on them raises Unknown, so that one mistake
    is one fault.
    """

    names: Mapping[str, Json]
    unsure: frozenset[str] = frozenset()
    partial: bool = False

    def text(self, template: str) -> str:
        """The rendered text.  Raises TemplateProblem and Unknown."""
        if not any(mark in template for mark in MARKUP):
            return template
        return str(self.value({"template": template}, template))

    def holds(self, expression: str) -> bool:
        """Whether an expression is true.  Raises TemplateProblem and Unknown."""
        if expression == "true":
            return True
        return bool(self.value({"expression": expression}, "{{" + expression + "}}"))

    def value(self, request: Mapping[str, str], template: str) -> object:
        """The value of a request, in a limited process unless `template` is cheap.

        Raises TemplateProblem and Unknown.
        """
        try:
            cheap = is_cheap(template, self.names)
            self.refuse_unsure(template)
        except Unknown:
            raise
        except Exception as error:  # even the parser's: a number of 5,000 digits
            raise self.problem(describe_error(error)) from error
        whole = {**request, "names": dict(self.names)}
        outcome = evaluate(whole) if cheap else evaluate_limited(whole)
        if "value" not in outcome:
            raise self.problem(outcome)
        return outcome["value"]

    def refuse_unsure(self, template: str) -> None:
        """Raise Unknown if `template` reads a var whose value is invalid."""
        if not self.unsure:
            return
        try:
            named = {each.name for each in environment().parse(template).find_all(nodes.Name)}
        except RecursionError:
            return  # evaluating it reports that
        if named & self.unsure:
            raise Unknown

    def problem(self, outcome: Mapping[str, object]) -> Exception:
        """What to raise for what went wrong in Jinja2."""
        said, line = str(outcome["said"]), int(str(outcome["line"]))
        if outcome["kind"] == "syntax":
            return TemplateProblem(f"template: {said}", line)
        if outcome["kind"] == "undefined" and self.partial:
            return Unknown()
        missing = re.match(r"'(\w+)' is undefined", said)
        if not missing:
            return TemplateProblem(f"template: {said}", line, str(outcome.get("hint", "")))
        hint = suggest(missing[1], self.names) or "an overlay of the profile must declare it"
        return TemplateProblem(f"no var named {quote(missing[1])}", line, hint)


def evaluate_limited(request: Mapping[str, object]) -> Mapping[str, object]:
    """The outcome of a request from a process with limits of time and memory."""
    # The program may run from a checkout that is not installed.
    env = {"PYTHONPATH": os.fspath(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-P", "-m", "imagebuilder.recipe.template"]
    done = run(argv, env=env, stdin=json.dumps(request).encode(), check=False)
    if done.status == 0:
        return parse_object(done.stdout, TEMPLATE_NAME)
    return {
        "kind": "other",
        "said": f"takes more than {MAX_SECONDS} s or {MAX_MEMORY >> 20} MiB",
        "line": 1,
        "hint": "a template fills in vars: look for a loop, a macro or a multiplication that grows",
    }


@dataclass(frozen=True)
class Scope:
    """One document and the renderer for its texts; adds to `faults`.

    `listed` is where the recipe names the overlay, `settings` where the recipe or the site file set
    its vars.
    """

    document: Document
    renderer: Renderer
    faults: list[Fault]
    listed: Origin | None = None
    settings: Mapping[str, Origin] = field(default_factory=dict)

    def origin_of(self, template: str) -> Origin | None:
        """Where the recipe or site file set the var that a template reads; None for a default."""
        named = re.findall(r"[A-Za-z_]\w*", "".join(MARKED.findall(template)))
        return next((self.settings[name] for name in named if name in self.settings), None)

    def refuse(self, path: KeyPath, what: str, hint: str = "", *, template: str = "") -> None:
        """Add a fault at the place in the recipe that causes it: a var, or the overlay's entry."""
        origin = self.origin_of(template) or self.listed or Origin(self.document, path)
        self.faults.append(origin.fault(what, hint))

    def fault(self, path: KeyPath, what: str, hint: str = "") -> None:
        self.faults.append(self.document.fault(path, what, hint))

    @property
    def manager(self) -> PackageManager | None:
        """The package manager of the base; None without a valid base."""
        try:
            return manager_of(str(self.renderer.names.get("distribution", "")))
        except KeyError:
            return None

    def text(self, path: KeyPath, template: str, rule: Rule | None = None) -> str | None:
        """The rendered text at `path`; None if it is invalid or breaks `rule`."""
        if rule is PACKAGE and self.manager and self.manager.capitals:
            rule = ANY_PACKAGE
        try:
            text = self.renderer.text(template)
        except TemplateProblem as problem:
            self.fault(path, problem.what, problem.hint)
            return None
        except Unknown:
            return None
        if rule and not rule.pattern.fullmatch(text):
            origin = self.origin_of(template)
            hint = f"its value is from {origin.where}" if origin else ""
            self.fault(path, f"{quote(text)} is not {rule.what}", hint)
            return None
        return text

    def holds(self, path: KeyPath, expression: str) -> bool:
        """Whether the expression at `path` is true; False if it is invalid."""
        try:
            return self.renderer.holds(expression)
        except TemplateProblem as problem:
            self.fault(path, problem.what, problem.hint)
        except Unknown:
            pass
        return False

    def counted(self, key: str, models: Sequence[M]) -> Iterator[tuple[KeyPath, M]]:
        """The models in the list `key` whose `when` holds, each with its path."""
        for number, model in enumerate(models):
            if self.holds((key, number, "when"), getattr(model, "when", "true")):
                yield (key, number), model

    def each(self, path: KeyPath, name: str) -> Iterator[Scope]:
        """This scope, or for a list var one for each of its elements, which has it as `each`."""
        if not name:
            yield self
            return
        value = self.renderer.names.get(name)
        if not isinstance(value, list):
            if not (self.renderer.partial or name in self.renderer.unsure):
                self.fault((*path, "each"), f"no list var named {quote(name)}")
            return
        for element in () if name in self.renderer.unsure else value:
            names = {**self.renderer.names, "each": element}
            written = {"each": self.settings[name]} if name in self.settings else {}
            renderer = replace(self.renderer, names=names)
            yield replace(self, renderer=renderer, settings={**self.settings, **written})

    def entries(self, path: KeyPath, entries: Sequence[Entry], rule: Rule) -> tuple[str, ...]:
        """The list at `path` with `when` decided; entries that render to nothing are left out."""
        return tuple(self.located(path, entries, rule))

    def located(self, path: KeyPath, entries: Sequence[Entry], rule: Rule) -> dict[str, Origin]:
        """The same, each entry with the first place where it is written."""
        found: dict[str, Origin] = {}
        for index, entry in enumerate(entries):
            below = (*path, index)
            for scope in self.each(below, "" if isinstance(entry, str) else entry.each):
                if text := scope.entry(below, entry, rule):
                    found.setdefault(text, Origin(self.document, below))
        return found

    def entry(self, path: KeyPath, entry: Entry, rule: Rule) -> str | None:
        """One entry of a list, or None if it does not count."""
        if isinstance(entry, str):
            return self.entry_text(path, entry, rule)
        if not self.holds((*path, "when"), entry.when):
            return None
        return self.entry_text((*path, "name"), entry.name, rule)

    def entry_text(self, path: KeyPath, template: str, rule: Rule) -> str | None:
        """The text of an entry; an empty one is valid and means that it does not count."""
        text = self.text(path, template)
        return self.text(path, template, rule) if text and text.strip() else None
