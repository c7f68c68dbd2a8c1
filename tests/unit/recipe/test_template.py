# SPDX-License-Identifier: Apache-2.0
"""Templates end: what is cheap is rendered at once, anything else within limits."""

from __future__ import annotations

import time

import pytest

from imagebuilder.digest import Json
from imagebuilder.recipe.render import Renderer, TemplateProblem, evaluate_limited
from imagebuilder.recipe.template import evaluate, is_cheap
from tests.unit.recipe.conftest import Project

pytestmark = pytest.mark.slow

NAMES: dict[str, Json] = {"words": ["x"] * 200, "number": 5, "text": "text" * 100, "flag": True}


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{% for x in range(10**9) %}{% endfor %}", "Range too big"),
        ("{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}", "1 s"),
        ("{% macro m(d) %}{% if d %}{{ m(d - 1) }}{{ m(d - 1) }}{% endif %}{% endmacro %}"
         "{{ m(60) }}", "1 s"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself endlessly"),
        ("{{ 'a' * 10**9 }}", "512 MiB"),
        ("{{ '%999999999d' % 1 }}", "512 MiB"),
        ("{{ 'a'|center(10**9) }}", "512 MiB"),
        ("{{ words|tojson(indent=10**9) }}", "512 MiB"),
        ("{{ words|map('center', 10**8)|list }}", "512 MiB"),
        ("{% set x = text %}" + "{% set x = x ~ x %}" * 40 + "{{ x }}", "512 MiB"),
        ("{{ text * 3000 }}", "more than 1 MiB of text"),
        ("{% for x in words recursive %}{{ loop(words) }}{% endfor %}", "calls itself"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
        ('{{ "\\ud800" }}', "surrogates not allowed"),
        ("{{ " + "9" * 5000 + " }}", "template: has a number of more than 4300 digits"),
        ("{{ 0x" + "f" * 8000 + " }}", "template: has a number of more than 4300 digits"),
    ],
)  # fmt: skip
def test_a_template_without_an_end_is_a_fault(template: str, what: str) -> None:
    before = time.monotonic()
    with pytest.raises(TemplateProblem) as caught:
        Renderer(NAMES).text(template)
    assert what in caught.value.what
    assert time.monotonic() - before < 20  # one second of the processor, on a busy machine


def test_an_expression_without_an_end_is_a_fault() -> None:
    with pytest.raises(TemplateProblem, match="512 MiB"):
        Renderer(NAMES).holds("'a' * 10**9 == 'b'")


@pytest.mark.parametrize(
    "template",
    [
        "{{ number * 262144 }}",
        "{{ words | map('trim') | join('\\n') }}",
        "{% set all = [('a', 'x'), ('b', 'y')] -%}{% for k, v in all if k in words %}{{ v }}"
        "{% else %}none{% endfor %}",
        "{% for x in words %}{% for y in text %}{{ number }}{% endfor %}{% endfor %}",
        "{{ 'a' if flag else 'b' }}{% if number > 3 %}{{ text|upper|default('x') }}{% endif %}",
        "{{ words|tojson }}{{ words|length }}{{ words[0] }}{{ nothing|default('') }}",
        "{% for x in words %}{{ x.split()[0] }}{% endfor %}{{ text.upper().startswith('T') }}",
        "{{ nothing }}",
        "{{ 1 / 0 }}",
        "{{ text.__class__ }}",
    ],
)
def test_a_cheap_template_has_the_same_outcome_in_both_places(template: str) -> None:
    assert is_cheap(template, NAMES)
    request = {"template": template, "names": NAMES}
    assert evaluate_limited(request) == evaluate(request)


@pytest.mark.parametrize(
    "template",
    [
        "{{ text.center(9) }}", "{{ text % 1 }}", "{{ text + text }}", "{{ number ** number }}",
        "{% set number = text %}{{ number * 9 }}", "{% for number in words %}{{ number * 9 }}"
        "{% endfor %}", "{{ words|batch(9) }}", "{% macro m() %}{% endmacro %}", "{{ range(9) }}",
        "{% filter upper %}{{ text }}{% endfilter %}", "{{ words|map('center', 9) }}",
        "{{ text|replace('', text) }}", "{{ n }}" * 1001, "x" * 65537,
        "{% for x in words %}" * 3 + "x" + "{% endfor %}" * 3,
    ],
)  # fmt: skip
def test_what_could_grow_is_not_cheap(template: str) -> None:
    assert not is_cheap(template, NAMES)


def test_what_is_not_cheap_is_rendered_all_the_same() -> None:
    macro = "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(text) }}{{ 'é' * 3 }}\n"
    assert Renderer(NAMES).text(macro) == f"<{NAMES['text']}>ééé\n"
    assert Renderer(NAMES).holds("range(3)|list|length == 3")


def test_the_file_is_named(project: Project) -> None:
    project.write(
        {"overlays/a/overlay.yaml": "description: An endless template\n", "recipes/p.yaml":
         "base: debian-trixie\noverlays: [a]\n",
         "overlays/a/files/etc/x.j2": "one\n{{ 'a' * 10**9 }}\n"}
    )  # fmt: skip
    said = project.faults()
    assert "overlays/a/files/etc/x.j2" in said
    assert "takes more than 512 MiB" in said
