# SPDX-License-Identifier: Apache-2.0
"""Check that the kernel can load a firmware file: its compression and its content."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Mapping

import zstandard

from imagebuilder.root import Root

# The XZ file format, 2.1.1.2: the kind of check is the low half of the second flag.  The kernel's
# decoder knows none and CRC32 (Documentation/staging/xz.rst).
XZ, CHECK_AT, CHECKS = b"\xfd7zXZ\x00", 7, {0: "none", 1: "CRC32", 4: "CRC64", 10: "SHA-256"}
KNOWN = (0, 1)
# What a server or a version control system may deliver instead of a file.
TEXTS: tuple[tuple[bytes, str], ...] = (
    (b"<!doctype html", "is a page of HTML"),
    (b"<html", "is a page of HTML"),
    (b"<?xml", "is an XML document"),
    (b"version https://git-lfs", "is a pointer of Git LFS"),
)


def unusable(root: Root, path: str) -> str:
    """Why the kernel or the device cannot use the file, "" if nothing is wrong."""
    content = root.read(path) or b""
    ending = next((end for end in UNPACKERS if path.endswith(end)), "")
    if ending:
        try:
            content = UNPACKERS[ending](content)
        except (lzma.LZMAError, zstandard.ZstdError, EOFError, ValueError) as error:
            return f"cannot be unpacked: {error}"
    if not content.strip(b"\0"):
        return "contains only zeros"
    begin = content[:64].lstrip().lower()
    return next((why for text, why in TEXTS if begin.startswith(text)), "")


def unpack_xz(content: bytes) -> bytes:
    """Raises ValueError for a check that the kernel does not support, LZMAError for damage."""
    if content.startswith(XZ) and content[CHECK_AT] & 0xF not in KNOWN:
        kind = CHECKS.get(content[CHECK_AT] & 0xF, "unknown")
        raise ValueError(f"its check is {kind}, the kernel supports only CRC32 (xz --check=crc32)")
    return lzma.decompress(content)


def unpack_zst(content: bytes) -> bytes:
    """Raises ZstdError for damage, EOFError for a file that was cut."""
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    plain = unpacker.decompress(content)
    if not unpacker.eof:
        raise EOFError("the file was cut")
    return plain


UNPACKERS: Mapping[str, Callable[[bytes], bytes]] = {".xz": unpack_xz, ".zst": unpack_zst}
