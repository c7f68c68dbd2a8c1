# SPDX-License-Identifier: Apache-2.0
"""Jinja2 in overlays: sandboxed, strict, and with nothing in it that differs between two builds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import TracebackType

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, UndefinedError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from imagebuilder.digest import Json
from imagebuilder.errors import Fault
from imagebuilder.recipe.model_words import Entry
from imagebuilder.recipe.positions import Document, KeyPath
from imagebuilder.recipe.validate import quote, suggest

# Names that templates have besides the vars; no overlay may declare them.
BASE_NAMES = ("suite", "distribution", "architecture")
BUILT_IN = ("profile", *BASE_NAMES)
# What Jinja2 itself gives a meaning, as a name or as an operator.
JINJA_WORDS = (
    "and", "dict", "else", "false", "if", "in", "is", "joiner", "loop", "namespace", "none", "not",
    "or", "range", "self", "true",
)  # fmt: skip
RESERVED = frozenset((*BUILT_IN, *JINJA_WORDS))
MARKUP = ("{{", "{%", "{#")
TEMPLATE_NAME = "<template>"


class TemplateProblem(Exception):  # noqa: N818 - turned into a Fault, no person sees it
    """What is wrong with a template, the line in it (from 1), and a hint."""

    def __init__(self, what: str, line: int, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.line, self.hint = what, line, hint


class Unknown(Exception):  # noqa: N818 - a state, not an error: the fault is reported elsewhere
    """The result depends on a var that is itself at fault."""


@dataclass(frozen=True)
class Rule:
    """What a rendered text must look like; `what` completes "is not ..."."""

    pattern: re.Pattern[str]
    what: str


@dataclass(frozen=True)
class Renderer:
    """Renders with the vars of one profile.

    `unsure` are vars whose value is at fault; with `partial` not even all names are known, because
    some overlay could not be read.  What depends on them raises Unknown, so that one mistake is
    one fault.
    """

    names: Mapping[str, Json]
    unsure: frozenset[str] = frozenset()
    partial: bool = False

    def text(self, template: str) -> str:
        """The rendered text.  Raises TemplateProblem and Unknown."""
        if not any(mark in template for mark in MARKUP):
            return template
        env = environment()
        try:
            self.refuse_unsure(env.parse(template))
            code = env.compile(template, TEMPLATE_NAME, TEMPLATE_NAME)
            compiled = Template.from_code(env, code, env.globals)
            return compiled.render(dict(self.names))
        except (TemplateProblem, Unknown):
            raise
        except Exception as error:  # a template can raise anything: `{{ 1 / 0 }}`
            raise self.problem(error) from error

    def holds(self, expression: str) -> bool:
        """Whether an expression is true.  Raises TemplateProblem and Unknown."""
        if expression == "true":
            return True
        try:
            self.refuse_unsure(environment().parse("{{" + expression + "}}"))
            compiled = environment().compile_expression(expression, undefined_to_none=False)
            return bool(compiled(dict(self.names)))
        except (TemplateProblem, Unknown):
            raise
        except Exception as error:
            raise self.problem(error) from error

    def refuse_unsure(self, tree: nodes.Template) -> None:
        """Raise Unknown if `tree` reads a var whose value is at fault."""
        if self.unsure and any(name.name in self.unsure for name in tree.find_all(nodes.Name)):
            raise Unknown

    def problem(self, error: Exception) -> Exception:
        """What to raise for an error out of Jinja2."""
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        if isinstance(error, TemplateSyntaxError):
            return TemplateProblem(f"template: {said}", error.lineno)
        if isinstance(error, UndefinedError) and self.partial:
            return Unknown()
        line = template_line(error.__traceback__)
        missing = re.match(r"'(\w+)' is undefined", said)
        if not missing:
            return TemplateProblem(f"template: {said}", line)
        hint = suggest(missing[1], self.names) or "an overlay of the profile must declare it"
        return TemplateProblem(f"no var named {quote(missing[1])}", line, hint)


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """The one environment, without what is random: two builds render the same text."""
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
    )
    del made.globals["lipsum"]
    del made.filters["random"]
    return made


def template_line(trace: TracebackType | None) -> int:
    """The line of the template in which an error happened; 1 if it is not known."""
    line = 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == TEMPLATE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@dataclass(frozen=True)
class Scope:
    """One document with the renderer its texts go through; what is wrong is added to `faults`."""

    document: Document
    renderer: Renderer
    faults: list[Fault]

    def fault(self, path: KeyPath, what: str, hint: str = "") -> None:
        """Note a fault at `path`."""
        self.faults.append(self.document.fault(path, what, hint))

    def text(self, path: KeyPath, template: str, rule: Rule | None = None) -> str | None:
        """The rendered text at `path`; None when it is at fault or breaks `rule`."""
        try:
            text = self.renderer.text(template)
        except TemplateProblem as problem:
            self.fault(path, problem.what, problem.hint)
            return None
        except Unknown:
            return None
        if rule and not rule.pattern.fullmatch(text):
            self.fault(path, f"{quote(text)} is not {rule.what}")
            return None
        return text

    def holds(self, path: KeyPath, expression: str) -> bool:
        """Whether the expression at `path` is true; false too when it is at fault."""
        try:
            return self.renderer.holds(expression)
        except TemplateProblem as problem:
            self.fault(path, problem.what, problem.hint)
        except Unknown:
            pass
        return False

    def entries(self, path: KeyPath, entries: Sequence[Entry], rule: Rule) -> tuple[str, ...]:
        """The list at `path` with `when` decided; what renders to nothing is left out."""
        rendered = (self.entry((*path, index), entry, rule) for index, entry in enumerate(entries))
        return unique(text for text in rendered if text)

    def entry(self, path: KeyPath, entry: Entry, rule: Rule) -> str | None:
        """One entry of a list, or None if it does not count."""
        if isinstance(entry, str):
            return self.entry_text(path, entry, rule)
        if not self.holds((*path, "when"), entry.when):
            return None
        return self.entry_text((*path, "name"), entry.name, rule)

    def entry_text(self, path: KeyPath, template: str, rule: Rule) -> str | None:
        """The text of an entry; empty is no fault, it means "not here"."""
        text = self.text(path, template)
        return self.text(path, template, rule) if text and text.strip() else None


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts in order, each once."""
    return tuple(dict.fromkeys(texts))
