# SPDX-License-Identifier: Apache-2.0
"""What a build proves is what it puts into the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder import build
from imagebuilder.image.proof import Proof
from imagebuilder.image.types import Image
from imagebuilder.pipeline import BuildOptions, build_profile
from imagebuilder.proof.prove import prove_tree
from imagebuilder.proof.provenance.types import Provenance
from imagebuilder.recipe.engines import Engines
from imagebuilder.settings import Settings
from imagebuilder.store.repository import Store
from imagebuilder.ui import Ui
from tests.integration.changes import add_script, linked, snapshot
from tests.workshop import Workshop

pytestmark = pytest.mark.root

# Everything that a layer can do to the one below it.
SCRIPT = """\
cd /usr/share/doc
rm -r bash; mkdir bash; echo new > bash/copyright
rm -r dash; echo file > dash
rm dpkg/copyright; mkdir dpkg/copyright
rm -r apt/copyright; mv tar tar-new
mkdir -m 2750 /opt/own; ln -s own /opt/link; chown 1:1 /opt/own
chmod 600 /etc/issue
"""


def test_the_tree_that_is_proved_is_the_one_in_the_store(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = linked(workshop, tmp_path)
    add_script(shop.project, "llama-cpp", SCRIPT)
    store = Store(shop.state / "store")
    proved: list[str] = []

    def see(
        image: Image, work: Path, name: str, engines: Engines, trace: Callable[[], Provenance]
    ) -> Proof:
        proved.append(name)
        store.checkout(image.root.commit, tmp_path / "stored")
        assert (work / name / "usr/share/doc/dash").read_text() == "file\n"
        assert snapshot(work / name) == snapshot(tmp_path / "stored")
        return prove_tree(image, work, name, engines, trace)

    monkeypatch.setattr(build, "prove_tree", see)
    settings = Settings(shop.project, shop.state, shop.cache, shop.site)
    built = build_profile("generic", settings, Ui(), BuildOptions(locked=True))
    assert built.new
    assert proved == ["c0"], "it was checked out again: the small change is to be applied"
