# SPDX-License-Identifier: Apache-2.0
"""What a build says of an image that the store has already."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from imagebuilder.cli.summary import render_summary
from imagebuilder.settings import Settings
from imagebuilder.store.repository import ImageRef


def test_an_older_image_is_told_from_the_newest(tmp_path: Path) -> None:
    state = tmp_path / "state"
    images = [
        ImageRef("demo", version, digest * 64) for version, digest in (("1", "a"), ("2", "b"))
    ]
    for time, image in enumerate(images):
        ref = state / "store/refs/heads" / image.ref
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(image.commit)
        os.utime(ref, (time, time))
    settings = Settings(tmp_path, state, tmp_path / "cache", tmp_path / "site.yaml")
    older: Any = SimpleNamespace(image=images[0], new=False)
    newest: Any = SimpleNamespace(image=images[1], new=False)
    assert render_summary(newest, settings) == "demo@2 is already in the store: nothing changed"
    said = render_summary(older, settings)
    assert said.startswith(
        "demo@1 is already in the store: nothing changed\n  demo@2 was built after"
    )
