# SPDX-License-Identifier: Apache-2.0
"""Files of a step as its digest sees them, and which of them an initrd may read."""

from __future__ import annotations

from imagebuilder.recipe.types import TreeFile
from imagebuilder.steps.placed import files_input, is_boot_file


def test_files_that_an_initrd_may_read() -> None:
    assert all(map(is_boot_file, ("/etc/modprobe.d/a.conf", "/etc/sysctl.d/60-a.conf")))
    assert not is_boot_file("/etc/default/llama-server")


def test_mode_owner_link_and_content_are_inputs() -> None:
    plain = TreeFile("/etc/a", "d", 0o644)
    others = (
        TreeFile("/etc/a", "e", 0o644),
        TreeFile("/etc/a", "d", 0o600),
        TreeFile("/etc/a", "d", 0o644, owner="x"),
        TreeFile("/etc/a", "d", 0o644, group="x"),
        TreeFile("/etc/a", "d", 0o644, link="d"),
        TreeFile("/etc/b", "d", 0o644),
    )
    assert all(files_input([plain]) != files_input([other]) for other in others)
