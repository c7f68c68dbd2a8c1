# SPDX-License-Identifier: Apache-2.0
"""Modules of DNF, and what else only bases and sources of RPMs may say."""

from __future__ import annotations

import pytest

from imagebuilder.lock.difference import digest_of_source
from tests.unit.recipe.conftest import Project

ROCKY = """\
distribution: rocky
suite: "9"
archives:
  - mirror: rocky
    suites: ["9"]
    components: [BaseOS, AppStream]
    keyring: /usr/share/distribution-gpg-keys/rocky/RPM-GPG-KEY-Rocky-9
    modules: [{streams}]
  - mirror: epel
    suites: ["9"]
    components: [Everything]
    keyring: /usr/share/distribution-gpg-keys/epel/RPM-GPG-KEY-EPEL-9
packages: [systemd, NetworkManager]
kernel: kernel
path-excludes: [{excludes}]
"""
OVERLAY = """\
description: An overlay of the tests
vars:
  branch: {type: string, default: open-dkms, description: A stream of the driver}
packages: [network-manager, "driver=3:580.1_a^1~2-1.el9"]
package-names:
  rocky: {network-manager: NetworkManager}
  trixie: {network-manager: NONE}
components: [HighAvailability]
sources:
  - name: vendor
    uri: https://vendor.example/rhel9
    suites: [/]
    key: key.asc
    fingerprints: [AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA]
    modules: ["nvidia-driver:{{ branch }}"EXTRA]
"""
SITE = """\
sources:
  vendor: {uri: "https://vendor.example/rhel9", key: ~/key.asc, because: its key is here}
"""


def make(
    project: Project,
    *,
    streams: str = "",
    excludes: str = "/usr/share/man/*",
    overlay: str = OVERLAY.replace("EXTRA", ""),
    base: str = "rocky-9",
) -> None:
    """A profile with that base and one overlay with a vendor's source."""
    project.write(
        {
            "recipes/bases/rocky-9.yaml": ROCKY.format(streams=streams, excludes=excludes),
            "recipes/p.yaml": f"base: {base}\noverlays: [own]\n",
            "overlays/own/overlay.yaml": overlay,
        }
    )


def vendorless(overlay: str) -> str:
    return overlay.partition("sources:")[0]


def test_streams_and_names_of_a_base_of_rpms(project: Project) -> None:
    make(project, streams="'nodejs:20', 'php:8.2'", overlay=vendorless(OVERLAY))
    recipe = project.load()
    own, epel = recipe.base.sources
    assert (own.streams, epel.streams) == (("nodejs:20", "php:8.2"), ())
    assert recipe.base.packages == ("systemd", "NetworkManager")
    assert recipe.overlays[0].packages == ("NetworkManager", "driver=3:580.1_a^1~2-1.el9")
    assert (recipe.base.suite, recipe.base.engine) == ("9", "rpm")
    # EPEL has no such component.
    assert own.components == ("BaseOS", "AppStream", "HighAvailability")
    assert epel.components == ("Everything",)


def test_a_stream_is_a_part_of_what_a_lock_asks_for(project: Project) -> None:
    make(project, overlay=vendorless(OVERLAY))
    without = digest_of_source(project.load().base.sources[0])
    make(project, streams="'nodejs:20'", overlay=vendorless(OVERLAY))
    assert digest_of_source(project.load().base.sources[0]) != without


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        ("nodejs", 'modules[0]: "nodejs" is not a module and its stream, such as nvidia'),
        ("'a:b:c'", '"a:b:c" is not a module and its stream'),
        ("'a:b\\nc'", "is not a module and its stream"),
        (
            "'php:8.1', 'php:8.2'",
            'archives[0].modules[1]: "php:8.1" is also enabled, and a module has one stream',
        ),
    ],
)
def test_what_is_no_stream(project: Project, streams: str, said: str) -> None:
    make(project, streams=streams.replace("'", '"'), overlay=vendorless(OVERLAY))
    assert said in project.faults()


def test_a_module_has_one_stream_in_the_whole_profile(project: Project) -> None:
    project.write({"site.yaml": SITE, "home/key.asc": "not read here"})
    overlay = OVERLAY.replace("EXTRA", "")
    make(project, streams="'nvidia-driver:590-open'", overlay=overlay)
    found = project.faults()
    assert "overlays/own/overlay.yaml:15:14: sources[0].modules: the profile also" in found
    assert 'enables "nvidia-driver:590-open", and a module has one stream' in found


def test_archives_of_debian_have_no_modules(project: Project) -> None:
    make(project, base="debian-trixie", overlay=OVERLAY.replace("EXTRA", ""))
    found = project.faults()
    assert "overlays/own/overlay.yaml:15:14: sources[0].modules: repositories of apt" in found
    assert "have no modules\n  hint: remove the key" in found
    # The name for Rocky does not count here, that for trixie does, and is none of Debian.
    assert '"NONE" is not the name of a package: use lower-case' in found
    assert "NetworkManager" not in found


@pytest.mark.parametrize("path", ["/usr/share/man/*/*", "/usr/share/man", "/*", "/usr/[a-m]*/*"])
def test_only_whole_folders_are_excluded_of_rpms(project: Project, path: str) -> None:
    make(project, excludes=f'"{path}"', overlay=vendorless(OVERLAY))
    said = "path-excludes[0]: rpm excludes only whole folders, as /FOLDER/*\n  hint: name a folder"
    assert said in project.faults()


def test_repositories_of_rpms_do_not_expire(project: Project) -> None:
    make(project, overlay=vendorless(OVERLAY))
    file = project.root / "recipes/bases/rocky-9.yaml"
    consent = "    expired-release: {accept-days: 3, because: it stands still}\n"
    file.write_text(file.read_text().replace("    modules: []\n", consent))
    assert "archives[0].expired-release: repositories of rpm do not expire" in project.faults()


def test_a_suite_is_text(project: Project) -> None:
    make(project, overlay=vendorless(OVERLAY))
    file = project.root / "recipes/bases/rocky-9.yaml"
    file.write_text(file.read_text().replace('"9"', "9"))
    found = project.faults()
    assert 'suite: expected text, found the number 9\n  hint: quote it: "9"' in found
    assert (
        'archives[1].suites[0]: expected text, found the number 9\n  hint: quote it: "9"' in found
    )


def test_an_overlay_names_the_release_that_it_refuses(project: Project) -> None:
    refusal = (
        "refuses: [{when: distribution == 'rocky', because: nobody tried it, instead: nothing}]\n"
    )
    make(project, overlay=vendorless(OVERLAY) + refusal)
    assert '"own" cannot be used on rocky 9: nobody tried it' in project.faults()
