# SPDX-License-Identifier: Apache-2.0
"""What repositories of RPMs, and rpm itself, say: whoever answers for a mirror chooses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from imagebuilder.families.rpm.indexes import locked_sources
from imagebuilder.families.rpm.modules import module_filter
from imagebuilder.families.rpm.repomd import parse_repomd
from imagebuilder.families.rpm.repository import Index, Repository
from imagebuilder.families.rpm.signatures import problem_in
from imagebuilder.recipe.types import Source

SOURCE = Source("rocky", ("9",), ("AppStream",), Path("/key"), mirror="rocky")
REPOSITORY = Repository(SOURCE, "9", "AppStream", "http://m.example/9", "9")
DIGEST = "0123456789abcdef" * 4
REPOMD = f"""<?xml version="1.0" encoding="UTF-8"?>
<repomd xmlns="http://linux.duke.edu/metadata/repo" xmlns:rpm="http://linux.duke.edu/metadata/rpm">
  <revision>1750000000</revision>
  <data type="primary">
    <checksum type="sha256">{DIGEST}</checksum>
    <open-checksum type="sha256">{DIGEST}</open-checksum>
    <location href="repodata/{DIGEST}-primary.xml.gz"/>
    <timestamp>1750000000</timestamp>
    <size>737</size>
    <open-size>2254</open-size>
  </data>
</repomd>
""".encode()
MODULES = b"""---
document: modulemd
version: 2
data:
  name: perl
  stream: "5.30"
  version: 8030020200313080146
  context: a1234567
  dependencies:
  - requires: {platform: [el9], other: [-1]}
  artifacts:
    rpms:
    - perl-4:5.30.1-452.module_el8.3.0+6149+1.x86_64
...
---
document: modulemd-defaults
version: 1
data: {module: perl, stream: "5.30", modified: 20200313}
...
"""
VERIFIED = b"""/p/a.rpm:
    Header V4 RSA/SHA256 Signature, key ID 350d275d: OK
    Header SHA256 digest: OK
    Payload SHA256 digest: BAD (Expected 12 != 34)
"""


def begin_repomd(place: Path) -> Callable[[bytes], None]:
    del place

    def take_in(content: bytes) -> None:
        locked_sources([parse_repomd(content, REPOSITORY, signed=False)])

    return take_in


def begin_modules(place: Path) -> Callable[[bytes], None]:
    path = place / "modules.yaml"
    index = Index(REPOSITORY, 0, DIGEST, signed=False, primary=path, modules=path)

    def take_in(content: bytes) -> None:
        path.write_bytes(content)
        module_filter([index])

    return take_in


def begin_verified(place: Path) -> Callable[[bytes], None]:
    del place

    def take_in(content: bytes) -> None:
        problem_in(content.decode(errors="replace"), Path("/p/a.rpm")).encode()

    return take_in
