# SPDX-License-Identifier: Apache-2.0
"""Units, groups and users that nothing brings, told before anything is built; and no others."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import InputError
from imagebuilder.lock.types import Lock, LockedBuild, LockedLayer, LockedPackage
from imagebuilder.named import check_named
from imagebuilder.plan import make_plan
from tests.fixtures.aptrepo import Deb, make_deb
from tests.unit.recipe.conftest import Project

UNIT = "[Install]\nWantedBy=multi-user.target\n"
DEBS = (
    Deb(
        "base-passwd",
        files={
            "/usr/share/base-passwd/group.master": "root:*:0:\nvideo:*:44:\n",
            "/usr/share/base-passwd/passwd.master": "nobody:*:65534:65534::/:/bin/false\n",
        },
        scripts={"md5sums": "0  usr/share/base-passwd/group.master\n"},
    ),
    Deb(
        "udev",
        files={
            "/usr/lib/sysusers.d/debian-udev.conf": "# groups\ng render -\nu! helper - -\n",
            "/usr/lib/systemd/system/udevd.service": (
                f"{UNIT}Alias=dev-manager.service other.path\n"
            ),
            "/usr/lib/systemd/system/net@.service": UNIT,
        },
        links={"/usr/lib/systemd/system/linked.service": "udevd.service"},
        scripts={
            "md5sums": "0  usr/lib/systemd/system/udevd.service\n"
            "1  usr/lib/systemd/system/net@.service\n",
        },
    ),
    # Without md5sums: its files alone say what it brings.
    Deb("plain", files={"/etc/init.d/old": "#!/bin/sh\n", "/usr/share/timers/x.timer": UNIT}),
    Deb(
        "munge",
        scripts={
            "md5sums": "0  usr/share/completions/docker\n",
            "postinst": "#!/bin/sh\naddgroup --system slurm\nuseradd -gbatch -M node_run\n"
            "cat > /etc/systemd/system/written.service\nsystemd-sysusers extra-ones.conf\n",
        },
    ),
)  # fmt: skip
RECIPE = "base: debian-trixie\noverlays: [{}]\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, LockedPackage]:
    """The packages, each with its file."""
    found = {}
    for deb in DEBS:
        path = tmp_path_factory.mktemp("debs") / "made.deb"
        make_deb(deb, path)
        digest = digest_of_file(path)
        found[path] = LockedPackage(deb.name, "1.0", "all", digest, 1, "pool/made.deb", "debian")
    return found


@dataclass(frozen=True)
class Pool:
    """A pool with the packages."""

    debs: Path
    packages: tuple[LockedPackage, ...]

    def check(self, project: Project) -> str:
        """What check_named() says of the profile `p`; "" for nothing."""
        recipe = project.load()
        built = (LockedBuild("it", (), (), (), ()),)
        layers = [LockedLayer(o.name, (), (), (), 1, built) for o in recipe.overlays]
        base = LockedLayer("", (), self.packages, (), 1)
        lock = Lock("p", "amd64", "debian-trixie", 1, (), (base, *layers))
        try:
            check_named(recipe, lock, make_plan(recipe, lock, layers=()), self.debs)
        except InputError as error:
            return str(error).replace(f"{project.root}/", "")
        return ""

    def spoil(self, content: bytes) -> None:
        """Write something else into each package."""
        for path in self.debs.glob("*.deb"):
            path.write_bytes(content)


@pytest.fixture
def pool(made: dict[Path, LockedPackage], tmp_path: Path) -> Pool:
    debs = tmp_path / "debs"
    debs.mkdir()
    for path, package in made.items():
        shutil.copy(path, debs / f"{package.sha256}.deb")
    return Pool(debs, tuple(made.values()))


def test_all_of_them_are_told_at_once_with_their_places(project: Project, pool: Pool) -> None:
    project.write(
        {
            "recipes/p.yaml": RECIPE.format("one, two"),
            "overlays/one/overlay.yaml": (
                "description: for this test\n"
                "vars: {who: {type: string, default: rendr, description: who it is}}\n"
                "users:\n  - name: me\n    groups: [video, '{{ who }}', late]\n"
                "units:\n  enable:\n    - udevd.service\n    - {name: udev.service, when: 'true'}\n"
            ),
            "overlays/two/overlay.yaml": (
                "description: for this test\ngroups: [{name: late}]\n"
                "files:\n  /etc/x: {owner: nobdy, group: docker}\n"
            ),
            "overlays/two/files/etc/x": "x",
        }
    )
    assert pool.check(project) == (
        'overlays/one/overlay.yaml:5:21: users[0].groups[1]: no package makes the group "rendr", '
        "and no overlay declares it in time\n"
        '  hint: did you mean "render"?\n'
        'overlays/one/overlay.yaml:5:34: users[0].groups[2]: no package makes the group "late", '
        "and no overlay declares it in time\n"
        '  hint: list the overlay "two", which declares it, before this one\n'
        "overlays/one/overlay.yaml:9:7: units.enable[1]: no package and no overlay provides the "
        'unit "udev.service"\n'
        '  hint: did you mean "udevd.service"?\n'
        'overlays/two/overlay.yaml:4:19: files["/etc/x"].owner: no package makes the user "nobdy", '
        "and no overlay declares it in time\n"
        '  hint: did you mean "nobody"?\n'
        'overlays/two/overlay.yaml:4:33: files["/etc/x"].group: no package makes the group '
        '"docker", and no overlay declares it in time\n'
        "  hint: declare it under `groups:` of the overlay"
    )


GROUPS = ("video", "render", "slurm", "batch", "extra-ones", "munge", "helper", "own", "me")
UNITS = (
    "udevd.service", "net@eth0.service", "linked.service", "dev-manager.service", "other.path",
    "old.service", "x.timer", "written.service", "mine.service", "also-mine.service",
)  # fmt: skip


@pytest.mark.parametrize("asked", [*GROUPS, *UNITS])
def test_what_something_may_bring_is_no_fault(project: Project, pool: Pool, asked: str) -> None:
    unit, group = ([asked], []) if asked in UNITS else ([], [asked])
    project.write(
        {
            "recipes/p.yaml": RECIPE.format("one"),
            "overlays/one/overlay.yaml": (
                "description: for this test\ngroups: [{name: own}]\n"
                f"users: [{{name: me}}, {{name: you, groups: {group}}}]\n"
                f"units: {{enable: {unit}, disable: [gone.service], mask: [nowhere.timer]}}\n"
            ),
            "overlays/one/files/etc/systemd/system/mine.service": f"{UNIT}Alias=also-mine.service",
        }
    )
    assert pool.check(project) == ""


EMPTY = "description: for this test\n"
ASKS = f"{EMPTY}users: [{{name: me, groups: [wheel]}}]\nunits: {{enable: [no.service]}}\n"


@pytest.mark.parametrize(
    ("overlays", "told"),
    [
        ({"one": EMPTY, "two": ASKS}, ["wheel", "no.service"]),
        ({"one": f"{EMPTY}scripts: [{{run: make}}]\n", "two": ASKS}, []),
        ({"one": f"{ASKS}scripts: [{{run: make}}]\n"}, ["wheel"]),
        ({"one": f"{EMPTY}builds: [{{name: it, run: make}}]\n", "two": ASKS}, []),
    ],
    ids=["nothing", "script before", "script of its own", "build"],
)
def test_what_scripts_and_builds_may_bring_is_no_fault(
    project: Project, pool: Pool, overlays: dict[str, str], told: list[str]
) -> None:
    project.write({"recipes/p.yaml": RECIPE.format(", ".join(overlays))})
    for name, text in overlays.items():
        project.write({f"overlays/{name}/overlay.yaml": text})
        project.write({f"overlays/{name}/make": "#!/bin/sh\n"})
    said = pool.check(project)
    assert [name for name in ("wheel", "no.service") if f'"{name}"' in said] == told


def test_nothing_is_certain_without_all_packages(project: Project, pool: Pool) -> None:
    project.write({"recipes/p.yaml": RECIPE.format("one"), "overlays/one/overlay.yaml": ASKS})
    pool.spoil(b"!<arch>\ncut")
    assert pool.check(project) == ""


def test_what_was_read_of_packages_is_read_once(project: Project, pool: Pool) -> None:
    project.write({"recipes/p.yaml": RECIPE.format("one"), "overlays/one/overlay.yaml": ASKS})
    said = pool.check(project)
    assert '"wheel"' in said
    pool.spoil(b"")
    assert pool.check(project) == said
