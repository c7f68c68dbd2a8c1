# SPDX-License-Identifier: Apache-2.0
"""What is wrong before the first step: the person is told, and nothing is touched."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.families.apt.family import APT
from imagebuilder.image.types import read_image
from imagebuilder.lock.verified import Pool
from imagebuilder.process import Completed, run
from imagebuilder.store.repository import Store
from imagebuilder.workspace import Workspace
from tests.integration.changes import add_file, change_overlay, leftovers, refs
from tests.workshop import Workshop

pytestmark = pytest.mark.root

# A plain user who, unlike one, may read everything: the folders of tests are root's.
AS_NOBODY = (
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--",
)  # fmt: skip


@pytest.fixture
def shop(workshop: Workshop, tmp_path: Path) -> Workshop:
    """A project to be changed, and the state of the session, which stays as it is."""
    return workshop.with_project(tmp_path / "project")


def assert_refused(shop: Workshop, done: Completed, code: int, *said: str) -> None:
    """The program refused with `code` and said each regular expression; it has done nothing."""
    assert done.status == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for pattern in said:
        assert re.search(pattern, done.stderr), f"{pattern!r} is not in\n{done.stderr}"
    assert leftovers(shop.state) == []


def lock_of(shop: Workshop) -> Path:
    """The lock file of `generic`."""
    return shop.project / "recipes/locks/generic.lock"


def test_build_needs_root(shop: Workshop, tmp_path: Path) -> None:
    words = [*AS_NOBODY, *shop.argv("--state", os.fspath(tmp_path / "state"), "build", "generic")]
    done = run(words, env=shop.env(IMAGEBUILDER_SUDO="never"), check=False)
    assert_refused(shop, done, 3, "error: building a root.* needs root\n  hint: .*sudo")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("words", [("gc",), ("shell", "generic", "-c", "true")])
def test_what_changes_the_store_needs_root(shop: Workshop, words: tuple[str, ...]) -> None:
    before = refs(shop.state)
    env = shop.env(IMAGEBUILDER_SUDO="never")
    done = run([*AS_NOBODY, *shop.argv(*words)], env=env, check=False)
    assert_refused(shop, done, 3, "error: ", "hint: .*sudo")
    assert refs(shop.state) == before


@pytest.mark.parametrize("words", [("images",), ("show", "generic"), ("plan", "generic")])
def test_looking_needs_no_more_than_to_read(shop: Workshop, words: tuple[str, ...]) -> None:
    done = run([*AS_NOBODY, *shop.argv(*words)], env=shop.env())
    assert "generic@" in done.stdout


def test_nothing_to_build_needs_no_more_than_to_read(shop: Workshop) -> None:
    words = [*AS_NOBODY, *shop.argv("build", "generic", "--locked")]
    assert "nothing changed" in run(words, env=shop.env()).stdout


def test_missing_lock(shop: Workshop) -> None:
    lock_of(shop).unlink()
    done = shop("build", "generic", "--locked", check=False)
    assert_refused(
        shop, done, 2, r"error: /\S+/generic.lock: there is no lock",
        "hint: run imagebuilder lock generic to resolve",
    )  # fmt: skip


def test_stale_lock_shows_every_difference(shop: Workshop) -> None:
    change_overlay(shop.project, "llama-cpp", packages=["tree", "wget"])
    lock = lock_of(shop).read_text()
    for words in (("build", "generic", "--locked"), ("plan", "generic")):
        assert_refused(
            shop, shop(*words, check=False), 2,
            "generic.lock: stale: package tree was added to overlay llama-cpp",
            "generic.lock: stale: package wget was added to overlay llama-cpp",
            "hint: run imagebuilder lock generic to bring it up to date",
        )  # fmt: skip
    assert lock_of(shop).read_text() == lock


def test_edited_lock(shop: Workshop) -> None:
    content = json.loads(lock_of(shop).read_text())
    version = content["layers"][0]["packages"][0]["version"]
    text = lock_of(shop).read_text().replace(f'"{version}"', f'"{version}.1"', 1)
    lock_of(shop).write_text(text)
    done = shop("build", "generic", "--locked", check=False)
    assert_refused(
        shop, done, 2, r"generic.lock:\d+: edited by hand", "hint: run imagebuilder lock"
    )


def test_offline_with_an_empty_pool(shop: Workshop, tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = shop("--state", os.fspath(state), "build", "generic", "--offline", check=False)
    assert_refused(
        shop, done, 2, r"error: \d{3} of the locked files are not in the pool",
        r"\n    and \d+ more", "hint: build once without --offline",
    )  # fmt: skip
    assert not list(state.glob("work/*"))
    assert refs(state) == {}


def test_fault_in_a_template(shop: Workshop) -> None:
    add_file(shop.project, "llama-cpp", "etc/greeting.j2", "one\n\n{{ llama_prot }}\n")
    add_file(shop.project, "ssh", "etc/other.j2", "{% if %}\n")
    done = shop("build", "generic", "--locked", check=False)
    assert_refused(
        shop, done, 2, r"overlays/llama-cpp/files/etc/greeting.j2:3: .*llama_prot",
        r"hint: did you mean \"llama_port\"", r"overlays/ssh/files/etc/other.j2:1: ",
    )  # fmt: skip


def test_kernel_that_is_not_the_only_one(shop: Workshop, tmp_path: Path) -> None:
    """Two kernels of one metapackage, planted with dpkg into the root that was built."""
    store = Store(shop.state / "store")
    store.checkout(read_image(store, store.image("generic")).root.commit, tmp_path / "c")
    pool = tmp_path / "pool"
    workspace = Workspace(tmp_path, ("c",), "u", 1, tmp_path / "log", Pool(pool, pool))
    release = APT.kernel_release(workspace, "linux-image-amd64")
    assert (tmp_path / "c/usr/lib/modules" / release).is_dir()
    plant = """
for name in one two; do
  mkdir -p /tmp/$name/DEBIAN /tmp/$name/boot
  touch /tmp/$name/boot/vmlinuz-$name
  printf 'Package: linux-image-%s\\nVersion: 1\\nArchitecture: all\\nMaintainer: x\\n' $name \
    > /tmp/$name/DEBIAN/control
  [ $name = one ] || printf 'Depends: linux-image-one\\n' >> /tmp/$name/DEBIAN/control
  printf 'Description: x\\n' >> /tmp/$name/DEBIAN/control
  dpkg-deb --build /tmp/$name /tmp/$name.deb
  dpkg --install /tmp/$name.deb
done
"""
    workspace.run(["sh", "-euc", plant])
    with pytest.raises(InputError, match="linux-image-two installs 2 kernels: one, two"):
        APT.kernel_release(workspace, "linux-image-two")
    with pytest.raises(InputError, match="linux-image-three installs 0 kernels"):
        APT.kernel_release(workspace, "linux-image-three")
    assert APT.kernel_release(workspace, "linux-image-amd64") == release


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("build", "generik"), 2, r'no profile named "generik"\n  hint: did you mean "generic"'),
        (("build", "../generic"), 2, r'no profile named "\.\./generic"'),
        (("show", "nope"), 2, "no image of profile nope"),
        (("show", "generic@nope"), 2, "no version of generic fits 'nope'\n  hint: available: 20"),
        (("shell", "--failed", "../../etc"), 2, "no failed build ../../etc was kept"),
        (("export", "generic", "/"), 2, "error: /: exists already"),
        (("--project", "/nonexistent", "profiles"), 2, "error: /nonexistent: has no recipes/"),
        (("--state", "/nonexistent", "fsck"), 2, "there is no store yet"),
    ],
)
def test_names_of_nothing(shop: Workshop, words: tuple[str, ...], code: int, said: str) -> None:
    assert_refused(shop, shop(*words, check=False), code, said)
