# SPDX-License-Identifier: Apache-2.0
"""Paths in settings of units: prefixes, binds, and what is below them."""

from __future__ import annotations

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.units import UnitPath, is_below, unit_paths
from imagebuilder.proof.services.programs import hidden_by
from imagebuilder.proof.services.start import hiding


def unit(**values: str) -> LoadedUnit:
    return LoadedUnit("a.service", (), {key: (value,) for key, value in values.items()})


@pytest.mark.parametrize(
    ("word", "source", "target", "is_optional"),
    [
        ("/srv/a", "/srv/a", "/srv/a", False),
        ("-+/srv/a/", "/srv/a", "/srv/a", True),
        ("/srv/a:/mnt/b:rbind", "/srv/a", "/mnt/b", False),
        ("/srv/a:ro", "/srv/a", "/srv/a", False),
        ("+/", "/", "/", False),
    ],
)
def test_a_path_of_a_unit(word: str, source: str, target: str, is_optional: bool) -> None:  # noqa: FBT001
    assert list(unit_paths(unit(X=word), "X", "Y")) == [UnitPath(source, target, is_optional)]


def test_what_is_below() -> None:
    assert is_below("/a/b", "/a")
    assert is_below("/a", "/a")
    assert is_below("/a", "/")
    assert not is_below("/ab", "/a")


@pytest.mark.parametrize(
    ("bind", "hidden"),
    [
        ("/srv/a:/mod", "InaccessiblePaths"),
        ("/models:/other", "InaccessiblePaths"),
        ("/srv:/models", ""),
        ("-/models", ""),
    ],
)
def test_a_bind_shows_what_is_at_its_destination(bind: str, hidden: str) -> None:
    bound = unit(InaccessiblePaths="/models", BindPaths=bind)
    assert hiding(bound, "/models/a.gguf") == hidden


def test_a_device_that_is_bound_elsewhere_is_hidden() -> None:
    key = "TemporaryFileSystem"
    shown, hidden = (
        hidden_by(unit(**{key: "/dev:ro", "BindPaths": bind}), "/dev/dri/renderD*")
        for bind in ("/srv/dri:/dev/dri", "/dev/dri:/srv")
    )
    assert (shown, hidden) == ("", key)
