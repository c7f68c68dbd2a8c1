# SPDX-License-Identifier: Apache-2.0
"""A repository of RPMs, and its verified indexes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imagebuilder.recipe.types import Source

# The processors of bases by their names in RPM; packages for every processor are `noarch`.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Repository:
    """One component of one suite of `source`: a folder with repodata/.

    `uri` is its address on this host, `path` its place below the source's archive, as in a lock.
    """

    source: Source
    suite: str
    component: str
    uri: str
    path: str

    @property
    def name(self) -> str:
        """For messages and files: `rocky-BaseOS`; unique in a recipe."""
        return "-".join(filter(None, (self.source.id, self.suite.strip("./"), self.component)))


@dataclass(frozen=True)
class Index:
    """The verified indexes of a repository, as files (possibly compressed) of the cache.

    `date` is that of the newest index in seconds since 1970, `repomd` the digest of repomd.xml.
    Not `signed`: nobody signed repomd.xml, and only the packages are signed.
    """

    repository: Repository
    date: int
    repomd: str
    signed: bool
    primary: Path
    filelists: Path | None = None
    modules: Path | None = None
