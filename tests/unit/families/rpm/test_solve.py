# SPDX-License-Identifier: Apache-2.0
"""What libsolv chooses, layer by layer, from repositories that createrepo_c made."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import FullError, InputError, WorkError
from imagebuilder.families.rpm.candidates import (
    Candidates,
    is_below,
    is_version,
    prefer,
    read_candidates,
)
from imagebuilder.families.rpm.repository import Index, Repository
from imagebuilder.families.rpm.solve import lock_layer, solve
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import LockedPackage
from imagebuilder.recipe.types import Source
from tests.fixtures.full import file_size_limit
from tests.fixtures.rpm_repository import Rpm, make_repository

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("rpmbuild") and shutil.which("createrepo_c")),
        reason="rpmbuild or createrepo_c is not installed",
    ),
]

KERNEL = "5.14.0-687.10.1.el9_8.0.1"
BASE = [
    Rpm("rpm"),
    Rpm("shell", version="5.1"),
    Rpm("tools", requires=("shell >= 5",), recommends=("editor",)),
    Rpm("editor"),
    Rpm("engine", version="1.0"),
    Rpm("engine", version="1.10"),
    Rpm("engine", version="1.9"),
    Rpm("big", epoch=2, requires=("/opt/odd/file",)),
    Rpm("odd", files={"/opt/odd/file": "odd\n"}),
    Rpm("rival", conflicts=("engine",)),
    Rpm("lame", requires=("nothing-has-this",)),
    Rpm("mail-one", provides=("mailer", "smtp = 3:2.5-1.el9")),
    Rpm("needs-old", requires=("engine = 1.0",)),
    Rpm("bits", architecture="i686"),
    Rpm("kernel-core", version="5.14.0", release="600.el9"),
    Rpm("kernel-core", version="5.14.0", release="687.10.1.el9_8.0.1"),
    Rpm("kernel-devel", version="5.14.0", release="600.el9"),
    Rpm("kernel-devel", version="5.14.0", release="687.10.1.el9_8.0.1"),
]
VENDOR = [Rpm("engine", version="0.9"), Rpm("vendor-tool", requires=("engine",))]


def index_of(folder: Path, source: Source) -> Index:
    repository = Repository(source, "9", "BaseOS", f"file:{folder}", "9/BaseOS/x86_64/os")
    found = {kind: next(folder.glob(f"repodata/*{kind}.xml*")) for kind in ("primary", "filelists")}
    return Index(
        repository,
        date=0,
        repomd="0" * 64,
        signed=True,
        primary=found["primary"],
        filelists=found["filelists"],
    )


def source_named(name: str) -> Source:
    return Source(name, ("9",), ("BaseOS",), Path("/key"), mirror=name)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    top = tmp_path_factory.mktemp("repositories")
    make_repository(top / "rocky", BASE)
    make_repository(top / "vendor", VENDOR)
    return top / "rocky", top / "vendor"


def load(folders: tuple[Path, Path], vendor: Source | None = None) -> Candidates:
    indexes = [index_of(folders[0], source_named("rocky"))]
    if vendor:
        indexes.append(index_of(folders[1], vendor))
    return read_candidates(indexes, "amd64")


def locked(
    candidates: Candidates, *requests: Request, kept: Sequence[LockedPackage] = ()
) -> list[list[str]]:
    """NAME=VERSION of each layer."""
    names = {package.name for package in kept}
    layers = solve(candidates, prefer(candidates, lambda _: True, kept), requests, names)
    return [
        [f"{each.name}={each.version}" for each in lock_layer(candidates, layer)]
        for layer in layers
    ]


def base(*packages: str) -> Request:
    return Request("", packages)


def test_a_base_has_rpm_and_what_its_packages_need(folders: tuple[Path, Path]) -> None:
    (chosen,) = locked(load(folders), base("tools"))
    assert chosen == ["rpm=1.0-1.el9", "shell=5.1-1.el9", "tools=1.0-1.el9"]


def test_the_newest_version_is_chosen(folders: tuple[Path, Path]) -> None:
    (chosen,) = locked(load(folders), base("engine"))
    assert "engine=1.10-1.el9" in chosen


@pytest.mark.parametrize("word", ["engine=1.9", "engine=1.9-1.el9"])
def test_a_version_can_be_requested(folders: tuple[Path, Path], word: str) -> None:
    (chosen,) = locked(load(folders), base(word))
    assert "engine=1.9-1.el9" in chosen


def test_a_layer_has_only_what_those_below_lack(folders: tuple[Path, Path]) -> None:
    layers = locked(load(folders), base("shell"), Request("more", ("tools", "shell")))
    assert layers[1] == ["tools=1.0-1.el9"]


def test_a_layer_that_requests_nothing_is_empty(folders: tuple[Path, Path]) -> None:
    assert locked(load(folders), base("shell"), Request("none", ()))[1] == []


def test_a_dependency_on_any_file_is_met_from_the_file_lists(folders: tuple[Path, Path]) -> None:
    (chosen,) = locked(load(folders), base("big"))
    assert {"big=2:1.0-1.el9", "odd=1.0-1.el9"} <= set(chosen)


def test_what_others_provide_can_be_requested(folders: tuple[Path, Path]) -> None:
    (chosen,) = locked(load(folders), base("mailer"))
    assert "mail-one=1.0-1.el9" in chosen


@pytest.mark.parametrize("word", ["smtp=2.5", "smtp=2.5-1.el9", "smtp=3:2.5-1.el9"])
def test_what_others_provide_in_a_version_can_be_requested(
    folders: tuple[Path, Path], word: str
) -> None:
    (chosen,) = locked(load(folders), base(word))
    assert "mail-one=1.0-1.el9" in chosen
    with pytest.raises(InputError, match="no source has smtp at version 2"):
        locked(load(folders), base("smtp=2"))


def test_a_package_for_another_processor_is_unknown(folders: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="no source has a package named bits"):
        locked(load(folders), base("bits"))


def test_all_unknown_packages_are_named_with_the_nearest(folders: tuple[Path, Path]) -> None:
    with pytest.raises(InputError) as caught:
        locked(load(folders), base("shel"), Request("more", ("engine=7", "xyzzy")))
    faults = caught.value.faults
    assert [fault.what for fault in faults] == [
        "no source has a package named shel",
        "no source has engine at version 7",
        "no source has a package named xyzzy",
    ]
    assert "shell" in (faults[0].hint or "")
    assert "1.10-1.el9" in (faults[1].hint or "")


def test_a_conflict_is_explained_with_the_layer_below(folders: tuple[Path, Path]) -> None:
    with pytest.raises(InputError) as caught:
        locked(load(folders), base("engine"), Request("more", ("rival",)))
    assert "conflicts with engine" in str(caught.value)
    assert "engine 1.10-1.el9 is from the base" in str(caught.value)
    assert caught.value.faults[0].where == "overlay more"


def test_a_layer_cannot_change_a_version_below(folders: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"engine 1\.10-1\.el9 is from the base"):
        locked(load(folders), base("engine"), Request("more", ("needs-old",)))


def test_a_dependency_that_nothing_provides_is_named(folders: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="nothing provides nothing-has-this"):
        locked(load(folders), base("lame"))


def test_headers_are_of_the_kernel_in_the_image(folders: tuple[Path, Path]) -> None:
    candidates = load(folders)
    build = Request("more", ("kernel-devel",), build="modules")
    layers = locked(candidates, base("kernel-core=5.14.0-600.el9"), build)
    assert layers[1] == ["kernel-devel=5.14.0-600.el9"]
    layers = locked(candidates, base("kernel-core"), build)
    assert layers[1] == [f"kernel-devel={KERNEL}"]


def test_a_build_is_solved_on_its_layers_alone(folders: tuple[Path, Path]) -> None:
    build = Request("more", ("tools",), build="b", layers=0)
    layers = locked(load(folders), base("shell"), build)
    assert layers[1] == ["shell=5.1-1.el9", "tools=1.0-1.el9"]


def test_locked_versions_are_kept(folders: tuple[Path, Path]) -> None:
    candidates = load(folders)
    shown = prefer(candidates, lambda _: True, ())
    before = lock_layer(candidates, solve(candidates, shown, [base("engine=1.9")])[0])
    (chosen,) = locked(candidates, base("engine"), kept=before)
    assert "engine=1.9-1.el9" in chosen


def of_repositories(top: Path, rpms: Sequence[Sequence[Rpm]], *sources: Source) -> Candidates:
    for source, packages in zip(sources, rpms, strict=True):
        make_repository(top / source.id, packages)
    return read_candidates([index_of(top / each.id, each) for each in sources], "amd64")


def test_what_obsoletes_a_requested_package_comes_instead(tmp_path: Path) -> None:
    """As dnf(8) has it; but not if a version is requested, or the lock has the package."""
    rpms = [
        Rpm("rpm"), Rpm("old"), Rpm("new", version="2", obsoletes=("old < 2",)),
        Rpm("alive", version="3"), Rpm("fork", obsoletes=("alive < 3",)),
        Rpm("whole"), Rpm("core", obsoletes=("whole",)),
    ]  # fmt: skip
    candidates = of_repositories(tmp_path, [rpms], source_named("rocky"))
    (chosen,) = locked(candidates, base("old", "alive", "whole"))
    assert chosen == ["alive=3-1.el9", "core=1.0-1.el9", "new=2-1.el9", "rpm=1.0-1.el9"]
    (chosen,) = locked(candidates, base("old=1.0"))
    assert chosen == ["old=1.0-1.el9", "rpm=1.0-1.el9"]
    shown = prefer(candidates, lambda _: True, ())
    before = lock_layer(candidates, solve(candidates, shown, [base("old=1.0")])[0])
    (chosen,) = locked(candidates, base("old"), kept=before)
    assert chosen == ["old=1.0-1.el9", "rpm=1.0-1.el9"]


@pytest.mark.parametrize(("priority", "provider"), [(400, "own"), (500, "fine"), (600, "fine")])
def test_of_what_provides_the_same_the_better_source_has_it(
    tmp_path: Path, priority: int, provider: str
) -> None:
    rpms = (
        [Rpm("rpm"), Rpm("tool", requires=("cap",)), Rpm("own", provides=("cap",))],
        [Rpm("fine", version="9", provides=("cap",))],
    )
    vendor = replace(source_named("vendor"), pin_priority=priority)
    candidates = of_repositories(tmp_path, rpms, source_named("rocky"), vendor)
    (chosen,) = locked(candidates, base("tool"))
    assert any(each.startswith(f"{provider}=") for each in chosen)


def test_file_lists_are_read_where_they_may_change_what_is_chosen(tmp_path: Path) -> None:
    """Not only if nothing could be chosen: an old version, or another package, may do without."""
    rpms = [
        Rpm("rpm"), Rpm("tool", requires=("library",)), Rpm("library"), Rpm("plain"),
        Rpm("library", version="2", requires=("/opt/odd/file",)),
        Rpm("odd", files={"/opt/odd/file": "odd\n"}),
        Rpm("needs", requires=("cap",)), Rpm("b", provides=("cap",)),
        Rpm("a", provides=("cap",), conflicts=("/opt/odd/file",)),
        Rpm("rich", requires=("(plain if /opt/odd/file)",)),
    ]  # fmt: skip
    sources = [source_named("rocky")]
    candidates = of_repositories(tmp_path, [rpms], *sources)
    locked(candidates, base("plain", "library=1.0"))
    assert not candidates.with_files
    (chosen,) = locked(candidates, base("tool"))
    assert "library=2-1.el9" in chosen
    (chosen,) = locked(of_repositories(tmp_path, [rpms], *sources), base("needs", "odd"))
    assert "b=1.0-1.el9" in chosen
    (chosen,) = locked(of_repositories(tmp_path, [rpms], *sources), base("rich", "odd"))
    assert "plain=1.0-1.el9" in chosen


@pytest.mark.parametrize(
    ("pins", "version"),
    [
        ({}, "1.10"),
        ({"pin_priority": 600}, "0.9"),
        ({"pin_priority": 400}, "1.10"),
        ({"pin_priority": 600, "pin_packages": ("other*",)}, "1.10"),
        ({"pin_priority": 600, "pin_version": "0.9*"}, "0.9"),
        ({"pin_priority": 600, "pin_version": "1.9"}, "1.9"),
    ],
)
def test_a_source_is_preferred_by_its_pins(
    folders: tuple[Path, Path], pins: dict[str, object], version: str
) -> None:
    vendor = replace(source_named("vendor"), **pins)  # type: ignore[arg-type]
    (chosen,) = locked(load(folders, vendor), base("vendor-tool"))
    assert f"engine={version}-1.el9" in chosen


def test_a_negative_priority_hides_a_source(folders: tuple[Path, Path]) -> None:
    vendor = replace(source_named("vendor"), pin_priority=-1)
    with pytest.raises(InputError, match="no source has a package named vendor-tool"):
        locked(load(folders, vendor), base("vendor-tool"))


def test_a_lock_has_the_file_and_its_source(folders: tuple[Path, Path]) -> None:
    candidates = load(folders)
    (layer,) = solve(candidates, prefer(candidates, lambda _: True, ()), [base("shell")])
    package = lock_layer(candidates, layer)[1]
    file = folders[0] / "Packages/shell-5.1-1.el9.noarch.rpm"
    assert package.path == "9/BaseOS/x86_64/os/Packages/shell-5.1-1.el9.noarch.rpm"
    assert (package.size, package.source) == (file.stat().st_size, "rocky")
    assert package.architecture == "noarch"


@pytest.mark.parametrize(
    ("location", "below"),
    [
        ("Packages/a.rpm", True),
        ("a.rpm", True),
        ("../a.rpm", False),
        ("Packages/../../a.rpm", False),
        ("/etc/a.rpm", False),
        ("http://x/a.rpm", False),
        ("Packages/a.txt", False),
        ("", False),
        ("Packages/a\nb.rpm", False),
        ("Packages/\u202ea.rpm", False),
    ],
)
def test_a_package_lies_in_its_repository(location: str, *, below: bool) -> None:
    assert is_below(location) == below


def test_an_index_of_another_place_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(folders[1], tmp_path / "repo")
    index = index_of(tmp_path / "repo", source_named("vendor"))
    plain = tmp_path / "primary.xml"
    text = gzip.decompress(index.primary.read_bytes()).decode()
    plain.write_text(text.replace('href="Packages/', 'href="../../'))
    rpm = index_of(folders[0], source_named("rocky"))
    candidates = read_candidates([rpm, replace(index, primary=plain)], "amd64")
    with pytest.raises(WorkError, match="is not in its repository"):
        locked(candidates, base("vendor-tool"))


@pytest.mark.parametrize(
    "sizes", ['package="0" installed="1"', 'package="-5" installed="1"', 'package="5"',
              'package="99999999999999999999" installed="1"', 'package="5" installed="-1"'],
)  # fmt: skip
def test_a_package_has_a_size_that_can_be(
    folders: tuple[Path, Path], tmp_path: Path, sizes: str
) -> None:
    """Without it curl(1) would fetch as much as a server sends."""
    index = index_of(folders[1], source_named("vendor"))
    plain = tmp_path / "primary.xml"
    text = gzip.decompress(index.primary.read_bytes()).decode()
    plain.write_text(re.sub(r"<size [^>]*/>", f"<size {sizes}/>", text))
    rpm = index_of(folders[0], source_named("rocky"))
    candidates = read_candidates([rpm, replace(index, primary=plain)], "amd64")
    if sizes == 'package="5"':
        assert locked(candidates, base("vendor-tool"))
        return
    with pytest.raises(WorkError, match="has a size that none has"):
        locked(candidates, base("vendor-tool"))


@pytest.mark.parametrize("kind", ["truncated", "noise"])
def test_an_index_that_cannot_be_read_is_named(
    folders: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    index = index_of(folders[1], source_named("vendor"))
    content = index.primary.read_bytes()
    path = tmp_path / "primary.xml.gz"
    path.write_bytes(content[:-20] if kind == "truncated" else b"<metadata><pack")
    with pytest.raises(WorkError, match="cannot be read"):
        read_candidates([replace(index, primary=path)], "amd64")


def test_a_full_disk_is_not_a_broken_index(folders: tuple[Path, Path]) -> None:
    index = index_of(folders[1], source_named("vendor"))
    with file_size_limit(100), pytest.raises(FullError, match="no space left"):
        read_candidates([index], "amd64")


def test_versions_match_with_and_without_their_parts(folders: tuple[Path, Path]) -> None:
    candidates = load(folders)
    big = next(each for each in candidates.every if each.name == "big")
    for word in ("2:1.0-1.el9", "1.0-1.el9", "2:1.0", "1.0", "1.*"):
        assert is_version(big, word)
    assert not is_version(big, "1")
