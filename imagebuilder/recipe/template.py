# SPDX-License-Identifier: Apache-2.0
"""Evaluate one Jinja2 template, with a bound on its cost that is known before it runs.

Templates that the bound shows to be cheap are rendered here: every template of an ordinary overlay.
Anything else (calls, macros, large nested loops) runs in a process of its own with limits, because
nothing inside Python can interrupt `'a' * 10**9`, and a template has endless ways to write it.

Run as a program, this file is that process: a request as JSON on stdin, the outcome on stdout.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import TracebackType
from typing import cast

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, UndefinedError, nodes
from jinja2.environment import TemplateExpression
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_NAME = "<template>"
MARKUP = ("{{", "{%", "{#")

# Limits of that process: seconds of processor time including its start, bytes of memory.
MAX_SECONDS = 1
MAX_MEMORY = 512 * 1024 * 1024
# Characters of a result.
MAX_TEXT = 1024 * 1024
# Limits of what is rendered here: characters produced plus steps, and the template's length.
MAX_COST = 20_000_000
MAX_LENGTH = 64 * 1024
MAX_MARKS = 1000

# Filters whose result is as long as what they read, at most.
LINEAR = frozenset((
    "abs", "capitalize", "count", "d", "default", "first", "float", "int", "items", "join", "last",
    "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe",
    "select", "selectattr", "sort", "string", "title", "trim", "unique", "upper",
))  # fmt: skip
# Growth factor of filters that write one character as six, or as an entity.
GROWING = {"tojson": 8, "escape": 8, "e": 8}
# Methods of text, lists and mappings that only select; a list of words is longer than its text.
METHODS = frozenset((
    "capitalize", "count", "endswith", "get", "index", "items", "keys", "lower", "lstrip",
    "removeprefix", "removesuffix", "rsplit", "rstrip", "split", "splitlines", "startswith",
    "strip", "title", "upper", "values",
))  # fmt: skip
WORDS = 6
# Nodes that cost as much as their children.
PLAIN = (
    nodes.Template, nodes.Output, nodes.If, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And,
    nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.Test, nodes.Getattr, nodes.Getitem, nodes.List,
    nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Slice, nodes.Concat,
)  # fmt: skip
ARITHMETIC = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod)


class Costly(Exception):  # noqa: N818 - a state, not an error: the template runs elsewhere
    """The cost of a template cannot be bounded, or the bound is too high."""


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """The one environment, without what is random: two builds render the same text."""
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
    )
    del made.globals["lipsum"]
    del made.filters["random"]
    return made


# The overlays of every profile have the same few hundred texts: each is compiled once.
COMPILED = 2048


@lru_cache(maxsize=COMPILED)
def compile_template(template: str) -> Template:
    env = environment()
    code = env.compile(template, TEMPLATE_NAME, TEMPLATE_NAME)
    return Template.from_code(env, code, env.globals)


@lru_cache(maxsize=COMPILED)
def compile_expression(expression: str) -> TemplateExpression:
    return environment().compile_expression(expression, undefined_to_none=False)


@lru_cache(maxsize=COMPILED)
def parse_template(template: str) -> nodes.Template:
    """The tree of a template, which callers must not change."""
    return environment().parse(template)


def render_template(template: str, names: Mapping[str, object]) -> str:
    """The rendered text.  A template can raise anything: `{{ 1 / 0 }}`."""
    return compile_template(template).render(dict(names))


def is_cheap(template: str, names: Mapping[str, object]) -> bool:
    """Whether rendering cannot take long.  Raises what the parser raises."""
    if len(template) > MAX_LENGTH or sum(map(template.count, MARKUP)) > MAX_MARKS:
        return False
    try:
        Bound(names).check(parse_template(template))
    except (Costly, RecursionError):
        return False
    return True


class Bound:
    """The most that a template can produce and do, from the sizes of its names."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self.names = names
        self.numbers = frozenset(
            name for name, value in names.items() if isinstance(value, int | float)
        )
        self.sizes: dict[str, int] = {}  # of the names that the template reads or sets

    def size(self, name: str) -> int:
        """The most characters of a name when printed; a template reads few of the vars."""
        if name not in self.sizes:
            known = 32 if name in self.numbers else 1
            measured = name in self.names and name not in self.numbers
            self.sizes[name] = size_of(self.names[name]) if measured else known
        return self.sizes[name]

    def check(self, tree: nodes.Template) -> None:
        """Raise Costly unless `tree` is cheap."""
        self.cost(tree)

    def cost(self, node: nodes.Node) -> int:
        """A bound of the characters and steps of `node`.  Raises Costly."""
        found = 1 + self.cost_inside(node)
        if found > MAX_COST:
            raise Costly
        return found

    def all_of(self, listed: Sequence[nodes.Node]) -> int:
        return sum(map(self.cost, listed))

    def cost_inside(self, node: nodes.Node) -> int:
        """The same without the step of the node itself."""
        if isinstance(node, nodes.TemplateData | nodes.Const):
            return len(str(node.data if isinstance(node, nodes.TemplateData) else node.value))
        if isinstance(node, nodes.Name):
            return self.size(node.name)
        if isinstance(node, PLAIN):
            return self.all_of(list(node.iter_child_nodes()))
        if isinstance(node, nodes.Filter) and node.node is not None:
            return self.cost_filter(node, node.node)
        if isinstance(node, ARITHMETIC) and self.is_number(node):
            return self.cost(node.left) + self.cost(node.right)
        if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name):
            self.sizes[node.target.name] = found = self.cost(node.node)
            self.numbers -= {node.target.name}
            return found
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            return self.cost_method(node, node.node)
        if isinstance(node, nodes.For) and not node.recursive:
            return self.cost_loop(node)
        raise Costly

    def cost_filter(self, node: nodes.Filter, value: nodes.Expr) -> int:
        """A filter that is known to be linear; `map` names another."""
        arguments = 1 + self.all_of([*node.args, *node.kwargs])
        if node.name in GROWING and not (node.args or node.kwargs):
            return GROWING[node.name] * self.cost(value)
        if node.name == "map" and node.args:
            (named, *more) = node.args
            if not isinstance(named, nodes.Const) or named.value not in LINEAR or more:
                raise Costly
        if node.name not in LINEAR or node.dyn_args or node.dyn_kwargs:
            raise Costly
        rounds = arguments if node.name in ("join", "map") else 1
        return self.cost(value) * rounds + arguments

    def cost_method(self, node: nodes.Call, method: nodes.Getattr) -> int:
        """A method whose result is not longer than its input."""
        if method.attr not in METHODS or node.dyn_args or node.dyn_kwargs:
            raise Costly
        return WORDS * self.cost(method.node) + self.all_of([*node.args, *node.kwargs])

    def cost_loop(self, node: nodes.For) -> int:
        """A loop: it has at most as many rounds as its iterable has characters."""
        rounds = self.cost(node.iter)
        targets = [node.target, *node.target.find_all(nodes.Name)]
        for target in targets:
            if isinstance(target, nodes.Name):
                self.sizes[target.name] = rounds
                self.numbers -= {target.name}
        body = self.all_of([*node.body, *([node.test] if node.test else [])])
        return rounds * (1 + body) + self.all_of(node.else_)

    def is_number(self, node: nodes.Node) -> bool:
        """Whether an expression is arithmetic with numbers only."""
        if isinstance(node, nodes.Const):
            return isinstance(node.value, int | float) and abs(node.value) < 1 << 63
        if isinstance(node, nodes.Name):
            return node.name in self.numbers
        return isinstance(node, ARITHMETIC) and all(map(self.is_number, (node.left, node.right)))


def size_of(value: object) -> int:
    """An upper bound of the characters of a var when printed."""
    return len(json.dumps(value, ensure_ascii=False, default=str)) + 1


def describe_error(error: Exception) -> dict[str, object]:
    """The kind, text and line of an error in a template."""
    said = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    if isinstance(error, MemoryError):
        said = f"takes more than {MAX_MEMORY >> 20} MiB"
    if isinstance(error, ValueError) and said.startswith("Exceeds the limit"):
        said = f"has a number of more than {sys.get_int_max_str_digits()} digits"
    if isinstance(error, RecursionError):
        said = "is nested too deeply, or calls itself endlessly"
    if isinstance(error, TemplateSyntaxError):
        return {"kind": "syntax", "said": said, "line": error.lineno}
    kind = "undefined" if isinstance(error, UndefinedError) else "other"
    return {"kind": kind, "said": said, "line": template_line(error.__traceback__)}


def template_line(trace: TracebackType | None) -> int:
    """The line of the template in which an error happened; 1 if it is not known."""
    line = 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == TEMPLATE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def evaluate(request: Mapping[str, object]) -> dict[str, object]:
    """The outcome of a request: `value`, or what describe_error() says."""
    names = cast("Mapping[str, object]", request["names"])
    try:
        if "expression" in request:
            return {"value": bool(compile_expression(str(request["expression"]))(dict(names)))}
        text = render_template(str(request["template"]), names)
        text.encode()  # half of a surrogate pair is no text
    except Exception as error:  # noqa: BLE001 - a template can raise anything
        return describe_error(error)
    if len(text) > MAX_TEXT:
        said = f"renders more than {MAX_TEXT >> 20} MiB of text"
        return {"kind": "other", "said": said, "line": 1}
    return {"value": text}


def main() -> None:
    """Answer one request within the limits; the kernel ends a process that goes beyond."""
    request = json.loads(sys.stdin.buffer.read())
    environment()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    sys.stdout.write(json.dumps(evaluate(request)))
    sys.stdout.flush()
    os._exit(0)  # without tearing down what the limits may have left half made


if __name__ == "__main__":
    main()
