# SPDX-License-Identifier: Apache-2.0
"""The kernel is chosen by what its package depends on, not by names or their order."""

from __future__ import annotations

from imagebuilder.families.apt.contents import brought_by

DEPENDS = {
    "linux-image-amd64": ["linux-image-7.2.12+deb14-amd64", "(=", "7.2.12-1)"],
    "linux-image-7.2.12+deb14-amd64": ["dracut", "|", "linux-binary-7.2.12+deb14-amd64"],
    "linux-binary-7.2.12+deb14-amd64": ["linux-base-7.2.12+deb14-amd64"],
    "linux-base-7.2.12+deb14-amd64": [],
    # Another kernel that is installed, and sorts first and last by name.
    "linux-image-5.14.0-687.10.1.el9": [],
    "linux-image-9.9.9-amd64": ["linux-image-amd64"],
}


def test_only_what_the_package_brings() -> None:
    assert set(brought_by("linux-image-amd64", DEPENDS)) == {
        "linux-image-amd64",
        "linux-image-7.2.12+deb14-amd64",
        "linux-binary-7.2.12+deb14-amd64",
        "linux-base-7.2.12+deb14-amd64",
    }


def test_a_concrete_kernel_package_and_a_circle() -> None:
    assert brought_by("a", {"a": ["b"], "b": ["a"]}) == ("a", "b")
    assert brought_by("linux-image-5.14.0-687.10.1.el9", DEPENDS) == (
        "linux-image-5.14.0-687.10.1.el9",
    )
