# SPDX-License-Identifier: Apache-2.0
"""A third package manager, as somebody else would add it: from its lock to a node that runs.

Its packages are tar files (tests/fixtures/tar_family.py), in an installed Python package with an
entry point; nothing of imagebuilder knows it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.image.types import read_image
from imagebuilder.lock.file import load_lock
from imagebuilder.process import Completed, Word, run
from imagebuilder.store.repository import Store
from tests.boot.verdict import passed_report
from tests.fixtures.tar_archive import groups_by_place, groups_of_debian, make_tar_archive
from tests.sampling import ALL
from tests.unit.proof.trees import Content, Link, Program, make_module, make_tree
from tests.workshop import CHECKOUT, Workshop

pytestmark = [pytest.mark.root, pytest.mark.slow]

BASE = """\
distribution: tarlinux
suite: one
archives:
  - mirror: tars
    suites: [one]
    components: [main]
    keyring: {keyring}
kernel: linux
packages: [base]
"""
RECIPE = """\
description: A node whose packages are tar files
base: tarlinux
overlays: [netboot, ssh, compute-node]
"""
DRACUT = '#!/bin/sh\nfor last; do :; done\necho "an initrd" > "$last"\n'
TINY: Mapping[str, Content] = {
    "/boot/vmlinuz-6.1": "a kernel\n",
    "/usr/lib/modules/6.1/modules.builtin": "",
    "/usr/lib/modules/6.1/modules.dep": "kernel/hello.ko:\n",
    "/usr/lib/modules/6.1/kernel/hello.ko": make_module(release="6.1"),
    "/usr/lib/os-release": "ID=tarlinux\n",
    "/usr/bin/dracut": Program(DRACUT),
    "/usr/share/hello": "hello\n",
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    **{f"/{name}/": "" for name in ("proc", "sys", "dev", "run", "tmp", "var/lib", "root")},
    **{f"/{name}": Link(f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")},
    "/usr/lib64/": "",
    "/usr/sbin/": "",
}
# Of the host, with their libraries: busybox has other options.
PROGRAMS = (
    "cat", "cp", "env", "ls", "mkdir", "mv", "realpath", "rm", "sed", "sh", "test", "touch",
    "truncate",
)  # fmt: skip
PROJECT: Mapping[str, Content] = {
    "/recipes/tiny.yaml": "description: A few programs\nbase: tarlinux\noverlays: [greeting]\n",
    "/overlays/greeting/overlay.yaml": "description: A greeting\npackages: [hello]\n",
    "/overlays/greeting/README.md": "Says hello.\n",
}
INFO = "tar_family-1.0.dist-info"
# What a recipe must know of it, without its code.
MANAGER = """\
from imagebuilder.package_managers import PackageManager

MANAGER = PackageManager(
    "tar", "tar_family:TAR", pool="tars", distributions=("tarlinux",), engines=("unpack",)
)
"""
WHEEL: Mapping[str, str] = {
    "tar_family.py": (CHECKOUT / "tests/fixtures/tar_family.py").read_text(),
    "tar_manager.py": MANAGER,
    f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: tar_family\nVersion: 1.0\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/entry_points.txt": "[imagebuilder.package_managers]\ntar = tar_manager:MANAGER\n",
    f"{INFO}/RECORD": "",
}


@dataclass(frozen=True)
class TarShop:
    """A workshop whose imagebuilder has the family installed beside it, and its archive."""

    shop: Workshop
    python: Path
    archive: Path

    def __call__(self, *words: str, check: bool = True, **more: str) -> Completed:
        """Run `imagebuilder WORDS` as a process of its own."""
        argv: list[Word] = [self.python, "-m", "imagebuilder.cli.main", *words]
        return run(argv, env=self.shop.env(**more), check=check, cwd=self.shop.project)


def make_python(folder: Path) -> Path:
    """An interpreter with what this one has, and the family installed from a wheel."""
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    (packages,) = folder.glob("lib/*/site-packages")
    own = Path(sys.prefix) / packages.relative_to(folder)
    run(["cp", "--archive", "--reflink=auto", f"{own}/.", packages])
    wheel = folder / "tar_family-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in WHEEL.items():
            archive.writestr(name, text)
    python = folder / "bin/python"
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel])
    return python


def make_tars(shop: Workshop, top: Path, root: Path, groups: Iterable[tuple[str, str]]) -> TarShop:
    """Take `root` apart into packages, which the project of the workshop has a base of."""
    trusted = make_tar_archive(root, groups, top / "archive")
    (top / "keyring").write_text(trusted)
    (shop.project / "recipes/bases").mkdir(parents=True, exist_ok=True)
    (shop.project / "recipes/bases/tarlinux.yaml").write_text(BASE.format(keyring=top / "keyring"))
    site = top / "site.yaml"
    site.write_text(f"mirrors: {{tars: 'file:{top}/archive'}}\nssh-keys: [{top}/key.pub]\n")
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", top / "key"])
    made = Workshop(shop.project, shop.state, site, top / "cache")
    return TarShop(made, make_python(top / "venv"), top / "archive")


def copy_program(program: Path, root: Path) -> None:
    """Copy a program of the host and the libraries that it needs."""
    listed = run(["ldd", program]).stdout
    libraries = (word for word in listed.split() if word.startswith("/"))
    for path in (os.fspath(program), *libraries):
        place = root / Path(path).relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> TarShop:
    """A root of a few programs in three packages, and a recipe that names them."""
    top = tmp_path_factory.mktemp("tars")
    root = make_tree(top / "root", TINY).path
    for name in PROGRAMS:
        copy_program(Path("/usr/bin") / name, root)
    project = top / "project"
    make_tree(project, PROJECT)
    shop = Workshop(project, top / "state", top / "site", top / "cache")
    places = {"/boot/": "linux", "/usr/lib/modules/": "linux", "/usr/share/hello": "hello"}
    return make_tars(shop, top, root, groups_by_place(root, places))


@pytest.fixture(scope="module")
def built(tars: TarShop) -> str:
    """`tiny`, built; the name of its image."""
    tars("lock", "tiny")
    planned = json.loads(tars("plan", "tiny", "--json").stdout)
    assert {step["action"] for step in planned["steps"]} == {"BUILD"}
    return str(json.loads(tars("build", "tiny", "--json").stdout)["image"])


def test_the_lock_has_the_packages_of_each_layer(tars: TarShop, built: str) -> None:
    lock = load_lock(tars.shop.project / "recipes/locks/tiny.lock")
    assert built.startswith("tiny@")
    assert [package.name for package in lock.layer("").packages] == ["base", "linux"]
    assert [package.name for package in lock.layer("greeting").packages] == ["hello"]
    assert all((tars.shop.state / "tars" / f"{p.sha256}.tar").is_file() for p in lock.packages)


def test_nothing_is_built_twice(tars: TarShop, built: str) -> None:
    planned = json.loads(tars("plan", "tiny", "--json").stdout)
    assert {step["action"] for step in planned["steps"]} == {"REUSE"}
    assert f"tiny@{planned['version']}" == built


def test_the_sbom_names_packages_as_the_family_does(tars: TarShop, built: str) -> None:
    entries = json.loads(tars("sbom", built).stdout)["packages"]
    urls = {ref["referenceLocator"] for each in entries for ref in each.get("externalRefs", ())}
    assert urls == {
        f"pkg:generic/tarlinux/{name}@1.0?distro=one" for name in ("base", "linux", "hello")
    }


def test_the_proof_asks_the_family_whose_files_are(tars: TarShop, built: str) -> None:
    proof = json.loads(tars("prove", built, "--json").stdout)
    assert proof["ok"]
    said = json.dumps(proof)
    assert "shipped by package base 1.0" in said


def test_whose_a_file_is(tars: TarShop, built: str) -> None:
    assert "hello 1.0" in tars("why", built, "/usr/share/hello").stdout


def test_a_package_that_no_source_has_is_said_with_its_place(tars: TarShop) -> None:
    overlay = tars.shop.project / "overlays/greeting/overlay.yaml"
    text = overlay.read_text()
    overlay.write_text(text.replace("[hello]", "[helo]"))
    done = tars("lock", "tiny", check=False)
    overlay.write_text(text)
    assert done.status == 2
    assert "greeting/overlay.yaml:2:12: no source has a package named helo" in done.stderr


def test_an_index_that_nobody_vouches_for_is_refused(tars: TarShop) -> None:
    index = tars.archive / "one/index.json"
    content = index.read_bytes()
    index.write_bytes(content.replace(b'"1.0"', b'"1.1"', 1))
    done = tars("lock", "tiny", check=False)
    index.write_bytes(content)
    assert done.status == 1
    assert "vouches for" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("engine: mmdebstrap", '"mmdebstrap" cannot build tarlinux'),
        ("package-manager: apt", "tarlinux uses tar"),
    ],
)
def test_what_does_not_fit_the_distribution_is_a_fault(tars: TarShop, line: str, said: str) -> None:
    base = tars.shop.project / "recipes/bases/tarlinux.yaml"
    text = base.read_text()
    base.write_text(f"{text}{line}\n")
    done = tars("plan", "tiny", check=False)
    base.write_text(text)
    assert done.status == 2
    assert f"tarlinux.yaml:{len(text.splitlines()) + 1}:" in done.stderr
    assert said in done.stderr


if ALL:  # minutes where KVM does not work

    def test_a_node_boots_from_it(workshop: Workshop, tmp_path: Path) -> None:
        """The root of `generic` as tar packages: built, checked, proved, published, booted."""
        store = Store(workshop.state / "store")
        image = read_image(store, store.image("generic"))
        (layer,) = (one for one in image.layers if one.title == "packages compute-node")
        commit = store.find_layer(layer.digest)
        assert commit
        store.checkout(commit, tmp_path / "root", links=False)
        shop = workshop.with_project(tmp_path / "project")
        (shop.project / "recipes/tarred.yaml").write_text(RECIPE)
        lock = load_lock(shop.project / "recipes/locks/generic.lock")
        asked = {name for layer in lock.layers if layer.overlay for name in layer.requested}
        groups = groups_of_debian(tmp_path / "root", asked)
        tars = make_tars(shop, tmp_path, tmp_path / "root", groups)
        tars("lock", "tarred")
        built = json.loads(tars("build", "tarred", "--json").stdout)["image"]
        checked = tars("check", built, check=False)
        assert checked.status == 0, checked.stdout + checked.stderr
        assert json.loads(tars("prove", built, "--json", check=False).stdout)["ok"]
        tree = tmp_path / "tree"
        tars("publish", built, IMAGEBUILDER_TREE=os.fspath(tree))
        report = passed_report(tars, "tarred", "-k", "netboot", tree=tree)
        (trial,) = report["trials"]
        reached = [stage["stage"] for stage in trial["machines"][0]["stages"]]
        assert reached[-2:] == ["ssh", "checks"]
