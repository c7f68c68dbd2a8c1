# SPDX-License-Identifier: Apache-2.0
"""Where a run finds its project."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.settings import load_settings


def test_the_old_name_of_the_variable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    with pytest.raises(InputError, match="now called IMAGEBUILDER_PROJECT"):
        load_settings({"IMAGEBUILDER_HOUSE": str(tmp_path)}, project=tmp_path)
