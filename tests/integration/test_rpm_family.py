# SPDX-License-Identifier: Apache-2.0
"""Images of RPMs, from their lock to a node that runs, without a mirror of Rocky Linux.

The archive is laid out, signed and indexed as Rocky's, and its packages have the names, scriptlets
and dependencies of an Enterprise Linux 9 as far as an installation notices them
(tests/fixtures/rpm_root.py).  The programs in them are those of this host: what is shown here is
the way of packages into a root, not that Rocky's own programs run in it.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_bytes
from imagebuilder.image.types import read_image
from imagebuilder.lock.file import load_lock
from imagebuilder.process import Completed, Word, run
from imagebuilder.recipe.load import load_recipe
from imagebuilder.resolve import requests_of
from imagebuilder.settings import load_settings
from imagebuilder.store.repository import Store
from scripts.benchmark.compare import (
    Stored,
    another_environment,
    differing_parts,
    on_another,
)
from tests.boot.verdict import passed_report
from tests.fixtures.aptrepo import (
    WITHOUT_PROXY,
    ArchiveServer,
    SigningKey,
    keyring,
    make_key,
    served,
)
from tests.fixtures.rpm_archive import (
    APPSTREAM,
    BASEOS,
    add_rpm,
    component_of,
    index_component,
    make_rpm_archive,
    place_of,
)
from tests.fixtures.rpm_debian import change_into_el9, debian_packages
from tests.fixtures.rpm_repository import (
    DATE,
    Rpm,
    armoured,
    index_repository,
    make_rpm,
    sign_index,
    sign_rpms,
)
from tests.fixtures.rpm_root import KERNEL, TRIGGERED, make_tiny, rpm, tiny_packages
from tests.integration.test_reproducible import stored, tell
from tests.sampling import ALL
from tests.unit.proof.trees import Content, make_tree
from tests.workshop import Workshop

pytestmark = [pytest.mark.root, pytest.mark.slow]

BASE = """\
distribution: rocky
suite: "9"
archives:
  - mirror: rocky
    suites: ["9"]
    components: [BaseOS, AppStream]
    keyring: {keyring}
kernel: kernel
packages: [rocky-release, coreutils, dracut, iputils]
"""
PROJECT: Mapping[str, Content] = {
    "/recipes/tiny.yaml": "description: A few programs\nbase: rocky\noverlays: [greeting]\n",
    "/overlays/greeting/overlay.yaml": "description: A greeting\npackages: [hello]\n",
    "/overlays/greeting/README.md": "Says hello.\n",
    "/recipes/rude.yaml": "description: A quarrel\nbase: rocky\noverlays: [greeting, rude]\n",
    "/overlays/rude/overlay.yaml": "description: Says no hello\npackages: [rude]\n",
    "/overlays/rude/README.md": "Cannot stand a greeting.\n",
    "/recipes/modular.yaml": "description: Streams\nbase: rocky\noverlays: [saluting]\n",
    "/overlays/saluting/overlay.yaml": "description: Salutes people\npackages: [salute]\n",
    "/overlays/saluting/README.md": "Salutes.\n",
    "/recipes/failing.yaml": "description: Scriptlets\nbase: rocky\noverlays: [failing]\n",
    "/overlays/failing/overlay.yaml": "description: Has a scriptlet\npackages: [failing]\n",
    "/overlays/failing/README.md": "Fails.\n",
}
BASE_NAMES = [
    "bash", "coreutils", "dracut", "filesystem", "glibc", "iputils", "kernel", "kernel-core",
    "kernel-modules", "kernel-modules-core", "kmod", "rocky-release", "rpm", "rpm-libs", "setup",
]  # fmt: skip
HELLO = rpm("hello", "greeter")
RUDE = Rpm("rude", conflicts=("hello",))
SALUTES = (
    Rpm("salute", "1.0", "1.module_el9", label="salute:1:9020250101000000:abcdef12"),
    Rpm("salute", "2.0", "1.module_el9", label="salute:2:9020250101000000:abcdef12"),
    Rpm("salute", "3.0"),
)
STREAM = """\
---
document: modulemd
version: 2
data:
  name: salute
  stream: "{stream}"
  version: 9020250101000000
  context: abcdef12
  arch: x86_64
  summary: Salutes
  description: Salutes
  license: {{module: [MIT]}}
  artifacts: {{rpms: ["{artifact}"]}}
...
"""
MODULES = (
    "".join(
        STREAM.format(stream=stream, artifact=each.nevra)
        for stream, each in zip("12", SALUTES, strict=False)
    )
    + """\
---
document: modulemd-defaults
version: 1
data: {module: salute, stream: "1", profiles: {}}
...
"""
)
DATABASE = "/var/lib/rpm/rpmdb.sqlite"


@dataclass(frozen=True)
class RpmShop:
    """A workshop with an archive of RPMs of its own, and the keys that may and may not sign it."""

    shop: Workshop
    archive: Path
    server: ArchiveServer
    key: SigningKey
    stranger: SigningKey

    def __call__(self, *words: str, check: bool = True, **more: str) -> Completed:
        return self.shop(*words, check=check, **WITHOUT_PROXY, **more)

    @property
    def base(self) -> Path:
        return self.shop.project / "recipes/bases/rocky.yaml"

    def elsewhere(self, state: Path) -> RpmShop:
        """The same project and archive with a state and a cache of their own."""
        shop = replace(self.shop, state=state, cache=state / "cache")
        return replace(self, shop=shop)

    def index(self, *, date: int = DATE, signed: bool = True, modules: str = "") -> None:
        """Index AppStream anew, and if it is of another date the rest too."""
        key = self.key if signed else None
        index_component(self.archive, APPSTREAM, key, date=date, modules=modules)
        if date != DATE:
            index_component(self.archive, BASEOS, key, date=date)

    @contextmanager
    def changed(self, path: Path, content: bytes | str) -> Iterator[None]:
        """With other content of a file of the archive or the project."""
        before = path.read_bytes()
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        try:
            yield
        finally:
            path.write_bytes(before)


@pytest.fixture(scope="module")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpmShop]:
    """The tiny root as an archive, and recipes that name its packages."""
    top = tmp_path_factory.mktemp("rpms")
    make_tiny(top / "root")
    with keyring() as home, served(top / "archive") as server:
        key, stranger = make_key(home, "Archive"), make_key(home, "Stranger")
        make_rpm_archive(top / "root", tiny_packages(top / "root"), top / "archive", key)
        add_rpm(top / "archive", RUDE, key)
        index_component(top / "archive", APPSTREAM, key)
        (top / "keyring").write_bytes(armoured(key))
        base = BASE.format(keyring=top / "keyring")
        make_tree(top / "project", {**PROJECT, "/recipes/bases/rocky.yaml": base})
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", top / "key"])
        site = f"mirrors: {{rocky: '{server.uri}'}}\nssh-keys: [{top}/key.pub]\n"
        (top / "site.yaml").write_text(site)
        shop = Workshop(top / "project", top / "state", top / "site.yaml", top / "cache")
        yield RpmShop(shop, top / "archive", server, key, stranger)


@pytest.fixture(scope="module")
def built(rpms: RpmShop) -> str:
    """`tiny`, built; the name of its image."""
    rpms("lock", "tiny")
    planned = json.loads(rpms("plan", "tiny", "--json").stdout)
    assert {step["action"] for step in planned["steps"]} == {"BUILD"}
    return str(json.loads(rpms("build", "tiny", "--json").stdout)["image"])


def test_the_lock_has_the_packages_of_each_layer(rpms: RpmShop, built: str) -> None:
    lock = load_lock(rpms.shop.project / "recipes/locks/tiny.lock")
    assert built.startswith("tiny@")
    assert [package.name for package in lock.layer("").packages] == BASE_NAMES
    greeter, hello = lock.layer("greeting").packages
    assert (greeter.name, hello.name, hello.version) == ("greeter", "hello", "1.0-1.el9")
    assert hello.path == "9/AppStream/x86_64/os/Packages/h/hello-1.0-1.el9.x86_64.rpm"
    assert all((rpms.shop.state / "rpms" / f"{p.sha256}.rpm").is_file() for p in lock.packages)


def test_nothing_is_built_twice(rpms: RpmShop, built: str) -> None:
    planned = json.loads(rpms("plan", "tiny", "--json").stdout)
    assert {step["action"] for step in planned["steps"]} == {"REUSE"}
    assert f"tiny@{planned['version']}" == built


def test_another_builder_makes_the_same_image(rpms: RpmShop, built: str, tmp_path: Path) -> None:
    """At another time, which is what a database of packages may keep, and in another place."""
    other = rpms.elsewhere(tmp_path / "state")
    environment = another_environment(tmp_path / "elsewhere")
    argv = on_another(other.shop.argv("build", "tiny", "--locked"))
    env = {**other.shop.env(), **WITHOUT_PROXY, **environment}
    run(argv, env=env, cwd=other.shop.project)
    one, two = stored(rpms.shop, built), stored(other.shop, built)
    assert differing_parts(one.manifest, two.manifest) == (), "\n".join(
        (tell(one, two, tmp_path), *differing_rows(one, two, tmp_path))
    )


def differing_rows(one: Stored, two: Stored, folder: Path) -> Iterator[str]:
    """The tables of the databases of packages in two images that are not the same."""
    databases = []
    for side, image in (("first", one), ("second", two)):
        image.store.checkout(image.root, folder / side, links=False)
        databases.append(read_tables(Path(f"{folder}/{side}{DATABASE}")))
    for name in sorted({*databases[0], *databases[1]}):
        rows = [set(tables.get(name, ())) for tables in databases]
        if rows[0] != rows[1]:
            yield f"  table {name}: {len(rows[0] ^ rows[1])} rows differ"


def read_tables(database: Path) -> Mapping[str, Sequence[object]]:
    """The rows of each table of a database."""
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [str(name) for (name,) in found]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}


def test_a_state_may_have_any_name(rpms: RpmShop, built: str, tmp_path: Path) -> None:
    """rpm takes the paths of packages for patterns, and `%` in its options for a macro."""
    assert built
    other = rpms.elsewhere(tmp_path / "a state [x] {a,b} %d ~")
    assert json.loads(other("build", "tiny", "--locked", "--json").stdout)["image"] == built


def test_a_root_is_as_its_packages_have_it(rpms: RpmShop, built: str, tmp_path: Path) -> None:
    image = stored(rpms.shop, built)
    root = tmp_path / "root"
    image.store.checkout(image.root, root, links=False)

    # 1. Owners by name, modes, capabilities, odd names.
    hello = root / "usr/share/hello"
    assert (hello / "hello.txt").stat().st_uid == 990
    assert (hello / "post").read_text() == "installed\n"
    assert {path.name for path in hello.iterdir()} == {
        "a file, with % and [braces].txt", r"hello-hel\x2dlo.txt", "hello.txt", "post",
    }  # fmt: skip
    assert stat.S_IMODE((root / "etc/shadow").lstat().st_mode) == 0
    assert stat.S_IMODE((root / "var/tmp").lstat().st_mode) == 0o1777
    assert "security.capability" in os.listxattr(root / "usr/bin/ping")

    # 2. Triggers of a layer have run for the packages of the next one.
    triggered = (root / TRIGGERED.lstrip("/")).read_text()
    assert "/usr/lib64/ld-linux-x86-64.so.2\n" in triggered
    assert "/usr/share/hello/hello.txt\n" in triggered

    # 3. A kernel that can be loaded, and neither its initrd nor an entry for a boot loader.
    modules = root / "usr/lib/modules" / KERNEL
    assert (modules / "vmlinuz").is_file()
    assert (modules / "modules.dep").read_text() == "kernel/drivers/net/hello.ko.xz:\n"
    assert sorted(path.name for path in (root / "boot").rglob("*")) == []

    # 4. One database, at rest, and nothing of an installation.
    folder = root / DATABASE.lstrip("/")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert not list((root / "var/lib").glob("rpm-state/*"))
    assert list((root / "var/tmp").iterdir()) == []
    asked: list[Word] = [
        "rpm",
        "--root",
        root,
        "--dbpath",
        Path(DATABASE).parent,
        "--query",
        "--all",
    ]
    assert len(run(asked).stdout.splitlines()) == len(BASE_NAMES) + 2


def test_an_image_has_the_sizes_of_its_packages(rpms: RpmShop, built: str) -> None:
    shown = json.loads(rpms("show", built, "--json").stdout)
    sizes = {each["name"]: each["installed-size"] for each in shown["packages"]}
    assert sizes["hello"] > 0
    assert sizes["rpm-libs"] > 1 << 20


def test_the_sbom_names_packages_as_the_family_does(rpms: RpmShop, built: str) -> None:
    entries = json.loads(rpms("sbom", built).stdout)["packages"]
    urls = {ref["referenceLocator"] for each in entries for ref in each.get("externalRefs", ())}
    version, release = KERNEL.removesuffix(".x86_64").split("-", 1)
    assert len(urls) == len(BASE_NAMES) + 2
    assert "pkg:rpm/rocky/hello@1.0-1.el9?arch=x86_64&distro=rocky-9" in urls
    assert "pkg:rpm/rocky/setup@1.0-1.el9?arch=noarch&distro=rocky-9" in urls
    assert f"pkg:rpm/rocky/kernel-core@{version}-{release}?arch=x86_64&distro=rocky-9" in urls


def test_the_proof_asks_the_family_whose_files_are(rpms: RpmShop, built: str) -> None:
    proof = json.loads(rpms("prove", built, "--json").stdout)
    assert proof["ok"]
    said = json.dumps(proof)
    assert "shipped by package rocky-release 1.0-1.el9" in said


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/usr/share/hello/hello.txt", "hello 1.0-1.el9"),
        (DATABASE, "rpm 1.0-1.el9"),
        (f"/lib/modules/{KERNEL}/vmlinuz", "kernel-core 5.14.0-"),
    ],
)
def test_whose_a_file_is(rpms: RpmShop, built: str, path: str, owner: str) -> None:
    assert owner in rpms("why", built, path).stdout


def test_a_package_that_no_source_has_is_said_with_its_place(rpms: RpmShop) -> None:
    overlay = rpms.shop.project / "overlays/greeting/overlay.yaml"
    with rpms.changed(overlay, overlay.read_text().replace("[hello]", "[helo]")):
        done = rpms("lock", "tiny", check=False)
    assert done.status == 2
    assert "greeting/overlay.yaml:2:12: no source has a package named helo" in done.stderr
    assert "hello" in done.stderr.partition("named helo")[2]


def test_overlays_whose_packages_conflict_are_named(rpms: RpmShop) -> None:
    done = rpms("lock", "rude", check=False)
    assert done.status == 2
    assert "rude" in done.stderr
    assert "conflicts with hello" in done.stderr
    assert "hello 1.0-1.el9 is from overlay greeting" in done.stderr


def test_an_index_that_nobody_signed_so_is_refused(rpms: RpmShop) -> None:
    repomd = component_of(rpms.archive, APPSTREAM) / "repodata/repomd.xml"
    with rpms.changed(repomd, repomd.read_bytes().replace(b"<revision>", b"<revision>1", 1)):
        done = rpms("lock", "tiny", check=False)
    assert done.status == 1
    assert "rocky" in done.stderr
    assert "AppStream" in done.stderr


def test_an_index_of_a_stranger_is_refused(rpms: RpmShop) -> None:
    folder = component_of(rpms.archive, APPSTREAM)
    signature = folder / "repodata/repomd.xml.asc"
    with rpms.changed(signature, b""):
        sign_index(folder, rpms.stranger)
        done = rpms("lock", "tiny", check=False)
    assert done.status == 1
    assert "AppStream" in done.stderr


def test_a_changed_list_of_packages_is_refused(rpms: RpmShop) -> None:
    (primary,) = (component_of(rpms.archive, APPSTREAM) / "repodata").glob("*-primary.xml.gz")
    with rpms.changed(primary, primary.read_bytes()[:-1] + b"x"):
        done = rpms.elsewhere(rpms.shop.state.with_name("fresh"))("lock", "tiny", check=False)
    assert done.status == 1
    assert "AppStream" in done.stderr


def test_where_no_index_is_signed_packages_are(rpms: RpmShop, tmp_path: Path) -> None:
    """As in EPEL; a note says so, and what a stranger signed is refused all the same."""
    signature = component_of(rpms.archive, APPSTREAM) / "repodata/repomd.xml.asc"
    package = place_of(rpms.archive, HELLO, APPSTREAM)
    text, content = signature.read_bytes(), package.read_bytes()
    other = rpms.elsewhere(tmp_path / "state")
    signature.unlink()
    try:
        done = other("lock", "tiny", check=False)
        assert done.status == 0, done.stderr
        assert "note:" in done.stderr
        assert "AppStream" in done.stderr
        sign_rpms([package], rpms.stranger)
        rpms.index(signed=False)
        other("lock", "tiny")
        done = other("build", "tiny", "--locked", check=False)
    finally:
        package.write_bytes(content)
        rpms.index()
    assert text
    assert done.status == 1
    assert "hello" in done.stderr
    assert "sign" in done.stderr


def test_a_signature_that_was_there_may_not_go_away(rpms: RpmShop, built: str) -> None:
    assert built
    signature = component_of(rpms.archive, APPSTREAM) / "repodata/repomd.xml.asc"
    text = signature.read_bytes()
    signature.unlink()
    try:
        done = rpms("lock", "tiny", check=False)
    finally:
        signature.write_bytes(text)
    assert done.status == 1
    assert "AppStream has no signature any more, but it had one" in done.stderr


@pytest.mark.parametrize("signed", [True, False])
def test_a_package_that_the_key_did_not_sign_is_refused(
    rpms: RpmShop, tmp_path: Path, *, signed: bool
) -> None:
    """Although the index, which is signed, has it: not signed at all, or by a stranger."""
    package = place_of(rpms.archive, HELLO, APPSTREAM)
    content = package.read_bytes()
    other = rpms.elsewhere(tmp_path / "state")
    run(["rpmsign", "--delsign", package])
    if signed:
        sign_rpms([package], rpms.stranger)
    try:
        rpms.index()
        other("lock", "tiny")
        done = other("build", "tiny", "--locked", check=False)
    finally:
        package.write_bytes(content)
        rpms.index()
        rpms("lock", "tiny")
    assert done.status == 1
    assert "hello" in done.stderr
    assert not list((other.shop.state / "rpms").glob(f"{digest_of_bytes(content)}*"))


def test_a_package_that_changed_is_refused(rpms: RpmShop, built: str, tmp_path: Path) -> None:
    assert built
    package = place_of(rpms.archive, HELLO, APPSTREAM)
    content = bytearray(package.read_bytes())
    content[-1] ^= 1
    other = rpms.elsewhere(tmp_path / "state")
    with rpms.changed(package, bytes(content)):
        done = other("build", "tiny", "--locked", check=False)
    assert done.status == 1
    assert "hello" in done.stderr


def test_a_build_without_a_network_asks_nobody(rpms: RpmShop, built: str) -> None:
    for file in (rpms.shop.state / "images").glob("*"):
        assert file
    before = len(rpms.server.asked)
    done = rpms("build", "tiny", "--offline", "--json")
    assert json.loads(done.stdout)["image"] == built
    assert len(rpms.server.asked) == before


def test_an_update_is_taken_when_a_person_asks(rpms: RpmShop, built: str, tmp_path: Path) -> None:
    """And kept away from a lock that is only refreshed, because a recipe has changed."""
    project = tmp_path / "project"
    shutil.copytree(rpms.shop.project, project)
    other = replace(rpms, shop=replace(rpms.shop, project=project))
    update = add_rpm(rpms.archive, replace(HELLO, version="1.1"), rpms.key)
    add_rpm(rpms.archive, Rpm("more"), rpms.key)
    overlay = project / "overlays/greeting/overlay.yaml"
    overlay.write_text(overlay.read_text().replace("[hello]", "[hello, more]"))
    try:
        rpms.index(date=DATE + 1)
        newer = json.loads(other("build", "tiny", "--json").stdout)["image"]
        kept = load_lock(project / "recipes/locks/tiny.lock")
        done = other("lock", "tiny")
        taken = load_lock(project / "recipes/locks/tiny.lock")
        # An archive that goes back is refused, unless a person says that it may.
        rpms.index(date=DATE - 1)
        older = other("lock", "tiny", check=False)
        assert other("lock", "tiny", "--allow-older").status == 0
    finally:
        update.unlink()
        index_component(rpms.archive, BASEOS, rpms.key)
        rpms.index()
    differs = other("diff", built, newer, "--files").stdout
    assert "more:noarch" in differs
    assert "/usr/lib/os-release (of rocky-release)" in differs
    assert [p.version for p in kept.layer("greeting").packages] == ["1.0-1.el9"] * 3
    assert [p.version for p in taken.layer("greeting").packages] == [
        "1.0-1.el9", "1.1-1.el9", "1.0-1.el9",
    ]  # fmt: skip
    assert "1.1-1.el9" in done.stdout
    assert older.status == 1
    assert "older" in older.stderr


@pytest.mark.parametrize(
    ("streams", "version"),
    [("", "1.0-1.module_el9"), ("    modules: ['salute:2']\n", "2.0-1.module_el9")],
)
def test_a_module_is_of_the_stream_that_is_enabled(
    rpms: RpmShop, streams: str, version: str
) -> None:
    """Or that is its default; a package of no module with a higher version is hidden."""
    base = rpms.base.read_text()
    for salute in SALUTES:
        add_rpm(rpms.archive, salute, rpms.key)
    rpms.index(modules=MODULES)
    with rpms.changed(rpms.base, base.replace("kernel: kernel", f"{streams}kernel: kernel")):
        rpms("lock", "modular")
    lock = load_lock(rpms.shop.project / "recipes/locks/modular.lock")
    assert [each.version for each in lock.layer("saluting").packages] == [version]


def test_a_stream_that_no_module_has_is_said(rpms: RpmShop) -> None:
    base = rpms.base.read_text()
    rpms.index(modules=MODULES)
    line = "    modules: ['salute:3']\n"
    with rpms.changed(rpms.base, base.replace("kernel: kernel", f"{line}kernel: kernel")):
        done = rpms("lock", "modular", check=False)
    assert done.status == 2
    assert 'source rocky:9: its module salute has no stream "3"' in done.stderr
    assert "hint: use one of salute:1, salute:2" in done.stderr


VENDORED = """\
description: What a vendor has
packages: [vendored]
sources:
  - name: vendor
    uri: {uri}/vendor/rhel9
    suites: ["/"]
    key: keys/vendor.asc
    fingerprints: [{fingerprint}]
"""


def test_a_vendor_s_repository_has_a_key_of_its_own(rpms: RpmShop, tmp_path: Path) -> None:
    """It is one folder with all packages in it, and vouches for its packages alone."""
    project = rpms.shop.project
    overlay = VENDORED.format(uri=rpms.server.uri, fingerprint=rpms.stranger.fingerprint)
    files: Mapping[str, Content] = {
        "/recipes/vendor.yaml": "description: A vendor\nbase: rocky\noverlays: [vendored]\n",
        "/overlays/vendored/overlay.yaml": overlay,
        "/overlays/vendored/README.md": "Of a vendor.\n",
        "/overlays/vendored/keys/vendor.asc": armoured(rpms.stranger),
    }
    make_tree(project, files)
    repository = rpms.archive / "vendor/rhel9"
    vendored = Rpm("vendored", files={"/usr/share/vendored": "of a vendor\n"})
    repository.mkdir(parents=True)
    make_rpm(vendored, repository / vendored.file_name, rpms.stranger)
    index_repository(repository, rpms.stranger)
    built = json.loads(rpms("build", "vendor", "--json").stdout)["image"]
    assert "vendored 1.0-1.el9" in rpms("why", built, "/usr/share/vendored").stdout
    (package,) = load_lock(project / "recipes/locks/vendor.lock").layer("vendored").packages
    assert (package.source, package.path) == ("vendor", vendored.file_name)

    # The distribution's key does not vouch for it.
    make_rpm(replace(vendored, version="1.1"), repository / "vendored-1.1.rpm", rpms.key)
    index_repository(repository, rpms.stranger, DATE + 1)
    other = rpms.elsewhere(tmp_path / "state")
    other("lock", "vendor")
    done = other("build", "vendor", "--locked", check=False)
    assert done.status == 1
    assert "vendored" in done.stderr
    assert "sign" in done.stderr


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ({"pre": "echo no room; exit 1"}, 1, "no room"),
        ({"post": "exit 1"}, 0, "failed: %post(failing-1.0-1.el9.noarch)"),
    ],
)
def test_a_scriptlet_that_fails(
    rpms: RpmShop, script: Mapping[str, str], status: int, said: str
) -> None:
    """Before the files are there it ends the build; afterwards rpm goes on, and a note says so."""
    failing = Rpm("failing", "1.0", requires=("bash",), scripts=script)
    add_rpm(rpms.archive, failing, rpms.key)
    rpms.index()
    rpms("lock", "failing")
    done = rpms("build", "failing", "--locked", check=False)
    assert done.status == status, done.stderr
    assert said in done.stderr


ROCKISH = """\
description: A node whose packages are RPMs
base: rocky-9
overlays: [netboot, ssh, compute-node]
"""
TAKEN = """\
description: The root that is taken apart
base: debian-bookworm
overlays: [netboot, ssh, compute-node, with-rpm]
"""
INSTALLER: Mapping[str, Content] = {
    "/overlays/with-rpm/overlay.yaml": "description: Installs RPMs\npackages: [rpm]\n",
    "/overlays/with-rpm/README.md": "Installs RPMs.\n",
    "/recipes/taken.yaml": TAKEN,
    "/recipes/rockish.yaml": ROCKISH,
}


def make_rockish(workshop: Workshop, top: Path, key: SigningKey) -> Workshop:
    """A copy of the project with a recipe on the base `rocky-9` as it is shipped, for whose sources
    a root of Debian 12 is taken apart.
    """
    shop = workshop.with_project(top / "project")
    make_tree(shop.project, INSTALLER)
    store = Store(shop.state / "store")
    image = read_image(
        store, store.image(json.loads(shop("build", "taken", "--json").stdout)["image"])
    )
    (layer,) = (one for one in image.layers if one.title == "packages with-rpm")
    commit = store.find_layer(layer.digest)
    assert commit
    store.checkout(commit, top / "root", links=False)
    owners = change_into_el9(top / "root")
    requests = requests_of(load_recipe("rockish", load_settings(shop.env())))
    names = [name for request in requests for name in request.packages]
    packages = debian_packages(top / "root", owners, names)
    make_rpm_archive(top / "root", packages, top / "archive", key)
    (top / "keyring").write_bytes(armoured(key))
    own = f"{{keyring: '{top}/keyring', because: a root of Debian in RPMs}}"
    site = top / "site.yaml"
    site.write_text(
        f"mirrors: {{rocky: 'file:{top}/archive', epel: 'file:{top}/archive'}}\n"
        f"keyrings: {{rocky: {own}, epel: {own}}}\n{workshop.site.read_text()}"
    )
    return replace(shop, site=site)


if ALL:  # minutes where KVM does not work

    def test_a_node_boots_from_it(workshop: Workshop, tmp_path: Path) -> None:
        """A root of Debian 12 as RPMs on the shipped base: built, checked, proved, booted."""
        with keyring() as home:
            shop = make_rockish(workshop, tmp_path, make_key(home, "Archive"))
        shop("lock", "rockish")
        built = json.loads(shop("build", "rockish", "--json").stdout)["image"]
        checked = shop("check", built, check=False)
        assert checked.status == 0, checked.stdout + checked.stderr
        assert json.loads(shop("prove", built, "--json", check=False).stdout)["ok"]
        tree = tmp_path / "tree"
        shop("publish", built, IMAGEBUILDER_TREE=os.fspath(tree))
        report = passed_report(shop, "rockish", "-k", "netboot", tree=tree)
        (trial,) = report["trials"]
        reached = [stage["stage"] for stage in trial["machines"][0]["stages"]]
        assert reached[-2:] == ["ssh", "checks"]
