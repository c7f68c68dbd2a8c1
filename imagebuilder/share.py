# SPDX-License-Identifier: Apache-2.0
"""What comes with the program beside its modules: recipes, overlays, cards, templates, scripts."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# A wheel has them inside the package (pyproject.toml); a clone has them at its top.
INSTALLED = (_PACKAGE / "share").is_dir()
SHARE = _PACKAGE / "share" if INSTALLED else _PACKAGE.parent
