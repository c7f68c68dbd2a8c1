# SPDX-License-Identifier: Apache-2.0
"""The table of device nodes."""

from __future__ import annotations

from imagebuilder.proof.reading.nodes import FAMILIES, find_family, opened_by


def test_every_beginning_is_found() -> None:
    assert all(find_family(family.begin) is family for family in FAMILIES)


def test_the_nodes_that_backends_open() -> None:
    assert opened_by(["hip"]) == ("/dev/dri/", "/dev/kfd")
    assert opened_by(["cuda", "vulkan"]) == ("/dev/dri/", "/dev/nvidia")
    assert opened_by(["cpu"]) == ()
