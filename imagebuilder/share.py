# SPDX-License-Identifier: Apache-2.0
"""The data files of the program: recipes, overlays, cards, templates, scripts."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# A wheel has them in the package (pyproject.toml), a clone at its top.
INSTALLED = (_PACKAGE / "share").is_dir()
SHARE = _PACKAGE / "share" if INSTALLED else _PACKAGE.parent
