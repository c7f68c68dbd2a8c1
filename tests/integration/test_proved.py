# SPDX-License-Identifier: Apache-2.0
"""What a build proves is what it puts into the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.families.shipped import Checksum, ChecksumKind, ShippedFile
from imagebuilder.image.proof import Answer, Level, Proof
from imagebuilder.image.types import Image, read_image
from imagebuilder.pipeline import BuildOptions, build_profile
from imagebuilder.proof import prove
from imagebuilder.proof.memory import FILE, Verified, find_verified, verified_file
from imagebuilder.proof.prove import prove_tree
from imagebuilder.proof.provenance.read import read_provenance
from imagebuilder.proof.reading.modules import ModuleReader
from imagebuilder.proof.reading.provenance import Entries, Provenance
from imagebuilder.proof.subject import RootReader
from imagebuilder.recipe.engines import Engines
from imagebuilder.root import Root
from imagebuilder.settings import Settings
from imagebuilder.store.kept_tree import find_trees
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
    proved = tmp_path / "proved"

    def see(
        image: Image,
        work: Path,
        name: str,
        engines: Engines,
        trace: Callable[[Mapping[str, ShippedFile], Entries], Provenance],
        reading: RootReader,
        *,
        on_answer: Callable[[Answer], None],
    ) -> Proof:
        proved.write_text(name)
        store.checkout(image.root.commit, tmp_path / "stored")
        assert (work / name / "usr/share/doc/dash").read_text() == "file\n"
        assert snapshot(work / name) == snapshot(tmp_path / "stored")
        return prove_tree(image, work, name, engines, trace, reading, on_answer=on_answer)

    monkeypatch.setattr(prove, "prove_tree", see)
    settings = Settings(shop.project, shop.state, shop.cache, shop.site)
    before = FILE.load(verified_file(shop.state, "generic"))
    built = build_profile("generic", settings, Ui(), BuildOptions(locked=True))
    assert built.new
    assert proved.read_text() == "c0", "it was checked out again: the small change is to be applied"

    # What the build before had verified was not hashed again, and what changed since was.
    image = read_image(store, store.image("generic"))
    after = FILE.load(verified_file(shop.state, "generic"))
    assert after.commit == image.root.commit != before.commit
    whole = read_provenance(store, image, Root(tmp_path / "stored"))
    assert after.intact == whole.compared.intact
    assert after.altered == whole.compared.altered
    assert after.altered, "slimming alters files"
    fresh = ModuleReader(Root(tmp_path / "stored"))
    assert {p: fresh.module(p) for p in after.modules[""]} == after.modules[""] != {}
    assert set(before.intact) - set(after.intact) >= {"/usr/share/doc/bash/copyright"}
    assert built.proof
    findings = [finding for answer in built.proof.answers for finding in answer.findings]
    warned = {finding.what for finding in findings if finding.level is Level.WARNING}
    assert "scripts changed files below /usr that packages ship" in warned

    # The tree is kept as the store has it, and the next build begins with it.
    (kept,) = find_trees(shop.state, "generic")
    assert kept.stem == image.root.commit
    assert snapshot(kept) == snapshot(tmp_path / "stored")
    add_script(shop.project, "llama-cpp", "true")
    inode = (kept / "usr/bin").stat().st_ino
    monkeypatch.undo()
    build_profile("generic", settings, Ui(), BuildOptions(locked=True))
    (again,) = find_trees(shop.state, "generic")
    assert (again / "usr/bin").stat().st_ino == inode, "it was checked out, not taken"


@pytest.mark.parametrize("planted", [b"{}", b"torn {", None], ids=["empty", "torn", "unknown"])
def test_what_is_not_known_is_hashed(
    workshop: Workshop, tmp_path: Path, planted: bytes | None
) -> None:
    store = Store(workshop.state / "store")
    image = read_image(store, store.image("generic"))
    state = tmp_path / "state"
    path = verified_file(state, "generic")
    path.parent.mkdir(parents=True)
    gone = FILE.render(Verified("0" * 64, {"/usr/bin/bash": Checksum(ChecksumKind.MD5, "0")}))
    path.write_bytes(gone.encode() if planted is None else planted)
    assert find_verified(state, store, image) == Verified()


def test_what_another_version_read_is_read_again(workshop: Workshop, tmp_path: Path) -> None:
    store = Store(workshop.state / "store")
    image = read_image(store, store.image("generic"))
    last = FILE.load(verified_file(workshop.state, "generic"))
    assert find_verified(workshop.state, store, image) == last
    path = verified_file(tmp_path, "generic")
    path.parent.mkdir()
    path.write_text(FILE.render(replace(last, read_by="another")))
    found = find_verified(tmp_path, store, image)
    assert (found.intact, found.altered) == (last.intact, last.altered)
    assert not found.modules
    assert not found.code
