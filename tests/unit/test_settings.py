# SPDX-License-Identifier: Apache-2.0
"""Where a run finds its project."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.settings import find_caller, load_settings


def test_the_old_name_of_the_variable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    with pytest.raises(InputError, match="now called IMAGEBUILDER_PROJECT"):
        load_settings({"IMAGEBUILDER_HOUSE": str(tmp_path)}, project=tmp_path)


@pytest.mark.root
@pytest.mark.parametrize(
    ("env", "caller"),
    [
        ({}, None),
        ({"SUDO_UID": "1000", "SUDO_GID": "100"}, (1000, 100)),
        ({"SUDO_UID": "0", "SUDO_GID": "0"}, None),
        ({"SUDO_UID": "1000"}, None),
        ({"SUDO_UID": "-1", "SUDO_GID": "100"}, None),
    ],
)
def test_who_called_sudo(env: dict[str, str], caller: tuple[int, int] | None) -> None:
    assert find_caller(env) == caller
