# SPDX-License-Identifier: Apache-2.0
"""What packages are called on other bases, where overlays cannot be, and which kernel is taken."""

from __future__ import annotations

import pytest

from tests.unit.recipe.conftest import HERE, Project

TRIXIE = (HERE / "base" / "debian-trixie.yaml").read_text()
NOBLE = """\
distribution: ubuntu
suite: noble
archives:
  - mirror: ubuntu
    suites: [noble, noble-updates]
    components: [main, universe]
    keyring: /usr/share/keyrings/ubuntu-archive-keyring.gpg
  - mirror: ubuntu-security
    suites: [noble-security]
    components: [main, universe]
    keyring: /usr/share/keyrings/ubuntu-archive-keyring.gpg
kernels: {ga: linux-image-generic, hwe: linux-image-generic-hwe-24.04}
kernel: hwe
"""
OVERLAY = """\
description: An overlay of the tests
vars:
  driver: {type: string, default: 580.1-1, description: A version}
  extra: {type: boolean, default: false, description: More}
packages:
  - plain
  - firmware-realtek
  - resolved
  - driver={{ driver }}
  - name: only-extra
    when: extra
builds:
  - name: modules
    packages: ["linux-headers-{{ architecture }}"]
    run: builds/modules
"""
MAPPING = """\
package-names:
  ubuntu:
    firmware-realtek: linux-firmware
    driver: [driver-open, driver-tools]
    resolved: {resolved}
    only-extra: other-extra
    "linux-headers-{{{{ architecture }}}}": linux-headers-generic
  noble:
    firmware-realtek: linux-firmware-realtek
"""


def make(project: Project, mapping: str = MAPPING, recipe: str = "", resolved: str = "[]") -> None:
    """A profile with that one overlay, and two bases."""
    project.write(
        {
            "recipes/bases/ubuntu-noble.yaml": NOBLE,
            "recipes/p.yaml": f"base: debian-trixie\noverlays: [a]\n{recipe}",
            "overlays/a/overlay.yaml": OVERLAY + mapping.format(resolved=resolved),
            "overlays/a/builds/modules": "#!/bin/sh\n",
        }
    )


def test_debian_keeps_its_names(project: Project) -> None:
    make(project)
    overlay = project.load("p").overlays[0]
    assert overlay.packages == ("plain", "firmware-realtek", "resolved", "driver=580.1-1")
    assert overlay.builds[0].packages == ("linux-headers-amd64",)


def test_names_of_another_distribution(project: Project) -> None:
    """The suite goes before its distribution; one name may be several or none; versions stay."""
    make(project)
    overlay = project.load("p.ubuntu-noble").overlays[0]
    assert overlay.packages == (
        "plain",
        "linux-firmware-realtek",
        "driver-open=580.1-1",
        "driver-tools=580.1-1",
    )
    assert overlay.builds[0].packages == ("linux-headers-generic",)
    make(project, recipe="vars: {extra: true}\n")
    assert project.load("p.ubuntu-noble").overlays[0].packages[-1] == "other-extra"


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ("package-names: {ubuntu: {plian: x1}}\n", 'package-names.ubuntu.plian: the overlay has no '
         'package "plian"\n  hint: did you mean "plain"?'),
        ("package-names: {ubunut: {plain: x1}}\n", 'package-names.ubunut: "ubunut" is neither a '
         'distribution nor the suite of a base\n  hint: did you mean "ubuntu"?'),
        ("package-names: {nobel: {plain: x1}}\n", '"nobel" is neither a distribution nor '
         'the suite of a base\n  hint: did you mean "noble"?'),
        ("package-names: {ubuntu: {plain: 'a b'}}\n", '"a b" is not the name of a package'),
        ("package-names: {ubuntu: {plain: [good, 'a=']}}\n", "package-names.ubuntu.plain[1]"),
        ("package-names: {ubuntu: {plain: 7}}\n", "package-names.ubuntu.plain: expected text or a"),
        ("package-names: {ubuntu: {'{{ nope }}': x1}}\n", 'no var named "nope"'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("profile", ["p", "p.ubuntu-noble"])
def test_slips_in_a_mapping_are_seen_on_every_base(
    project: Project, mapping: str, said: str, profile: str
) -> None:
    make(project)
    project.write({"overlays/a/overlay.yaml": OVERLAY + mapping})
    assert said in project.faults(profile)


def test_an_overlay_says_where_it_cannot_be(project: Project) -> None:
    make(project)
    refuses = """\
refuses:
  - when: suite == 'noble' and extra
    because: no archive of {{ suite }} has the driver {{ driver }}
    instead: take debian-trixie
"""
    project.write({"overlays/a/overlay.yaml": OVERLAY + refuses})
    assert project.load("p.ubuntu-noble").base.suite == "noble"
    make(project, recipe="vars: {extra: true}\n")
    project.write({"overlays/a/overlay.yaml": OVERLAY + refuses})
    assert project.load("p").base.suite == "trixie"
    assert project.faults("p.ubuntu-noble") == (
        'recipes/p.yaml:2:12: overlays[0]: "a" cannot be used on noble: no archive of noble has '
        "the driver 580.1-1\n  hint: take debian-trixie"
    )


@pytest.mark.parametrize(
    ("profile", "recipe", "kernel"),
    [
        ("p", "", "linux-image-amd64"),
        ("p.ubuntu-noble", "", "linux-image-generic-hwe-24.04"),
        ("p.ubuntu-noble", "kernel: ga\n", "linux-image-generic"),
        ("p.ubuntu-noble", "kernel: linux-image-virtual\n", "linux-image-virtual"),
        ("p", "kernel: linux-image-rt-amd64\n", "linux-image-rt-amd64"),
        ("child.ubuntu-noble", "kernel: ga\n", "linux-image-generic-hwe-24.04"),
    ],
)
def test_the_kernel_is_the_bases_or_the_recipes(
    project: Project, profile: str, recipe: str, kernel: str
) -> None:
    make(project, recipe=recipe)
    project.write({"recipes/child.yaml": "extends: p\nkernel: hwe\n"})
    assert project.load(profile).base.kernel == kernel


def test_a_kernel_that_the_base_does_not_know(project: Project) -> None:
    make(project, recipe="kernel: hwe\n")
    assert project.faults("p") == (
        'recipes/p.yaml:3:9: kernel: the base "debian-trixie" has no kernel named "hwe"\n'
        "  hint: name a package, such as linux-image-amd64"
    )
    make(project, recipe="kernel: gaa\n")
    assert 'did you mean "ga"?' in project.faults("p.ubuntu-noble")


def test_a_mirror_that_signs_itself(project: Project) -> None:
    """The site file says which keyring; its reason is recorded, as for vendors' repositories."""
    make(project)
    project.write(
        {"site.yaml": "keyrings: {ubuntu: {keyring: /srv/own.gpg, because: a mirror of our own}}\n"}
    )
    ubuntu, security = project.load("p.ubuntu-noble").base.sources
    assert (str(ubuntu.key), ubuntu.instead) == ("/srv/own.gpg", "a mirror of our own")
    assert (security.key.name, security.instead) == ("ubuntu-archive-keyring.gpg", "")
    assert [source.instead for source in project.load("p").base.sources if source.instead] == []
