# SPDX-License-Identifier: Apache-2.0
"""Which step made and changed a path, from what differs between layers."""

from __future__ import annotations

import hashlib
from pathlib import Path

from imagebuilder.proof.provenance.read import chain_of, differences, fold, installing
from imagebuilder.store.objects import object_path
from tests.unit.proof.provenance.chain import BASE, IMAGE_OF_LAYERS, PACKAGES, SITE

NEW = (("A", "/usr/share/tool"), ("A", "/usr/share/tool/a"))
INSTALLED = (("A", "/usr/bin/tool"), ("M", "/etc/passwd"), *NEW)
CHANGED = (("M", "/usr/bin/tool"), ("M", "/etc/passwd"))
CONFIGURED = (*CHANGED, ("D", "/usr/share/tool"), ("A", "/etc/site file"))
SAID = (
    (PACKAGES, INSTALLED),
    (SITE, CONFIGURED),
    ("finalise", NEW[:1]),
)
HISTORY = fold(BASE, SAID)


def test_what_no_step_changed_is_of_the_first() -> None:
    assert HISTORY.steps("/usr/bin/bash") == (BASE,)
    assert HISTORY.remover("/usr/bin/bash") == ""


def test_steps_come_in_the_order_of_the_build() -> None:
    assert HISTORY.steps("/usr/bin/tool") == (PACKAGES, SITE)
    assert HISTORY.steps("/etc/passwd") == (BASE, PACKAGES, SITE)
    assert HISTORY.steps("/etc/site file") == (SITE,)


def test_what_was_removed_and_made_again_is_of_who_made_it_last() -> None:
    assert HISTORY.steps("/usr/share/tool") == ("finalise",)


def test_a_folder_that_was_removed_took_along_what_was_in_it() -> None:
    removed = fold(BASE, SAID[:2])
    assert removed.remover("/usr/share/tool/a") == SITE
    assert removed.remover("/usr/share/tool") == SITE
    assert HISTORY.remover("/usr/share/tool") == ""


def test_the_initrd_is_no_layer_of_the_root() -> None:
    assert [one.title for one in chain_of(IMAGE_OF_LAYERS)] == [BASE, PACKAGES, SITE]
    assert installing(IMAGE_OF_LAYERS) == {BASE, PACKAGES}


def test_folders_may_be_as_deep_as_the_kernel_allows(tmp_path: Path) -> None:
    meta, tree = bytes(32), ""
    for _ in range(2000):
        entry = b"" if not tree else b"d\0" + bytes.fromhex(tree) + meta + bytes((34, 2))
        content = entry + bytes((len(entry),) if entry else ()) + b"\0"
        tree = hashlib.sha256(content).hexdigest()
        path = tmp_path / "objects" / object_path(tree, "dirtree")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    found = list(differences(tmp_path, "", tree))
    assert found[-1] == ("A", "/d" * 1999)
