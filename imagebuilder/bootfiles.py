# SPDX-License-Identifier: Apache-2.0
"""The files that iPXE fetches to boot an image, by the names they have in images and releases."""

from __future__ import annotations

KERNEL = "vmlinuz"
# The archives of the initrd that are not compressed.  An initrd that is all of one kind is one
# file, and that of an older image too.
EARLY = "early.img"
INITRD = "initrd.img"
# In the order in which the kernel needs them.
BOOT_FILES = (KERNEL, EARLY, INITRD)
