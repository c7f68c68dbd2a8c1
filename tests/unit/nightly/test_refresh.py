# SPDX-License-Identifier: Apache-2.0
"""What `imagebuilder lock` replaces, and what it says of it."""

from __future__ import annotations

import re

import pytest

from imagebuilder.errors import InputError
from imagebuilder.lock.file import load_lock, make_lock_file
from imagebuilder.lock.types import Lock
from imagebuilder.pipeline import Refreshed, refresh_lock, settled_lock
from imagebuilder.recipe.types import Recipe
from imagebuilder.ui import Ui
from tests.fixtures.aptrepo import Deb
from tests.unit.nightly.conftest import DATE, Project

pytestmark = pytest.mark.slow

NEWER = Deb("libhello", "1.1")


def refresh(project: Project, recipe: Recipe | None = None) -> Refreshed:
    return refresh_lock(recipe or project.recipe, project.settings, Ui(project.said))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda _: "", "is empty"),
        (lambda _: "\n", "is empty"),
        (lambda text: text[: len(text) // 2], "is damaged: not JSON"),
        (lambda text: text.replace('"schema": 1', '"schema": 9'), "its schema is 9"),
        (lambda text: text.replace('"digest": "', '"digest": "0'), "its digest does not match"),
        (lambda text: text.replace('"epoch": 1', '"epoch": 2', 1), "its digest does not match"),
        (lambda text: text.replace('"name": "hello"', '"name": 5'), "name: Input should be"),
        (lambda text: "<<<<<<< ours\n" + text, "a merge left conflict markers|not JSON"),
        (lambda _: "\udcff", "is not UTF-8 text"),
        (lambda _: "[" * 100_000, "is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_lock_is_named_by_build_and_replaced_by_lock(
    locked: Project,
    first_lock: Lock,
    damage: object,
    words: str,
) -> None:
    assert callable(damage)
    path = locked.settings.lock_file("tested")
    path.write_bytes(damage(path.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=words) as caught:
        settled_lock(locked.recipe, locked.settings, Ui(locked.said), refresh=True)
    assert "hint: " in str(caught.value)
    assert "run imagebuilder lock tested to write a new one" in str(caught.value)
    done = refresh(locked)
    assert done.previous is None
    assert re.match(r"note: .*; it is replaced, ", locked.said.getvalue())
    assert load_lock(path) == done.lock
    assert done.lock.layers == first_lock.layers


def test_a_damaged_lock_of_another_profile_is_its_own_business(locked: Project) -> None:
    other = locked.settings.lock_file("other")
    other.write_text("{")
    assert refresh(locked).previous is not None
    assert other.read_text() == "{"


def test_a_new_lock_and_one_in_which_nothing_changed_are_said(project: Project) -> None:
    assert refresh(project).render() == "tested: a new lock with 6 packages"
    again = refresh(project)
    assert again.render() == "tested: nothing changed, 6 packages"
    assert again.as_json() == {
        "profile": "tested", "new": False, "written": False, "packages": 6, "changes": [],
    }  # fmt: skip


def test_what_changed_is_said_in_words(locked: Project) -> None:
    hello = Deb("hello", "1.5", depends="libhello")
    locked.publish(hello, security=(NEWER,), date=DATE + 60)
    done = refresh(locked, locked.more())
    assert done.render().splitlines() == [
        "security: libhello 1.0 -> 1.1 (test-security)",
        "hello 1.0 -> 1.5",
        "idle 1.0 (added)",
        "tested: 3 packages changed, 1 of them security",
    ]
    assert done.as_json()["written"] is True
    make_lock_file(done.lock, locked.settings.lock_file("tested"))
    assert "idle 1.0 (removed)" in refresh(locked).render()


def test_newer_release_files_alone_change_no_package(locked: Project) -> None:
    locked.publish(date=DATE + 60)
    assert refresh(locked).render() == "tested: no package changed"
