# SPDX-License-Identifier: Apache-2.0
"""Templates: what they may do, and what is said when they fail."""

from __future__ import annotations

import pytest

from imagebuilder.recipe.render import Renderer, TemplateProblem, Unknown

RENDERER = Renderer({"user": "compute", "names": ["a", "b"], "size": 3})


def test_what_they_can() -> None:
    template = "{% for name in names %}{{ name }}={{ range(size) | list }}\n{% endfor %}"
    assert RENDERER.text(template) == "a=[0, 1, 2]\nb=[0, 1, 2]\n"
    assert RENDERER.text("no markup { } %\n") == "no markup { } %\n"
    assert RENDERER.text("{{ user }}\n\n") == "compute\n\n"
    assert RENDERER.text("<{{ user }}&'\">") == "<compute&'\">"
    assert RENDERER.holds("'a' in names and size > 2")
    assert not RENDERER.holds("other is defined")


@pytest.mark.parametrize(
    "template",
    ["{{ lipsum() }}", "{{ names | random }}", "{{ names.append('c') }}", "{% include '/x' %}",
     "{{ ().__class__.__base__.__subclasses__() }}", "{{ user.__init__.__globals__ }}",
     "{% import 'os' as os %}", "{{ range(999999999) }}", "{{" + "(" * 9999, "{{ '%c' % [] }}"],
)  # fmt: skip
def test_what_they_cannot(template: str) -> None:
    with pytest.raises(TemplateProblem):
        RENDERER.text(template)


def test_the_line_of_a_fault() -> None:
    with pytest.raises(TemplateProblem) as caught:
        RENDERER.text("one\n{% if size %}\n{{ usr }}\n{% endif %}\n")
    assert (caught.value.line, caught.value.what) == (3, 'no var named "usr"')
    assert caught.value.hint == 'did you mean "user"?'


@pytest.mark.parametrize("expression", ["nope", "a b", "size >", "size > 'a'", "}}", "", "user.x"])
def test_expressions_at_fault(expression: str) -> None:
    with pytest.raises(TemplateProblem):
        RENDERER.holds(expression)


def test_what_depends_on_a_fault_is_unknown_and_no_second_fault() -> None:
    unsure = Renderer({"user": "", "size": 3}, frozenset({"user"}))
    with pytest.raises(Unknown):
        unsure.text("{{ user }}")
    with pytest.raises(Unknown):
        unsure.holds("size > 1 and user")
    assert unsure.text("{{ size }}") == "3"
    with pytest.raises(Unknown):
        Renderer({}, partial=True).text("{{ of_an_overlay_that_was_not_read }}")
