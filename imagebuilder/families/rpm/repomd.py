# SPDX-License-Identifier: Apache-2.0
"""repomd.xml: which indexes a repository has, with their hashes.

Whoever answers for a mirror chooses its bytes until its signature is verified, and those of a
repository that nobody signs for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from xml.parsers.expat import ExpatError, ParserCreate

from imagebuilder.decode import END_OF_TIME
from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import WorkError
from imagebuilder.families.rpm.mirrors import is_inside
from imagebuilder.families.rpm.repository import Repository
from imagebuilder.untrusted import fit

MOST = 1 << 20  # bytes of a repomd.xml; real ones have ten thousand
MOST_RECORDS = 256
MOST_TEXT = 4096  # characters of a value
# Hash functions by their names in repomd.xml, with the digits of a digest.  SHA-1 ("sha") is in
# repositories of RHEL 5 alone, and two files may share one.
HASHES = {"sha256": 64, "sha384": 96, "sha512": 128}
# The largest indexes, as they are stored and unpacked: those of Fedora have a quarter of this.
MOST_STORED, MOST_UNPACKED = 1 << 30, 4 << 30
MOST_MODULES = 64 << 20
PRIMARY, FILELISTS, MODULES = "primary", "filelists", "modules"
# What is read, and the largest unpacked.
WANTED = {PRIMARY: MOST_UNPACKED, FILELISTS: MOST_UNPACKED, MODULES: MOST_MODULES}
ENDINGS = re.compile(r"\.(?:xml|yaml)(?:\.(?:gz|xz|zst|bz2))?")
NUMBER = re.compile(r"[0-9]{1,18}")
SECONDS = re.compile(r"([0-9]{1,12})(?:\.[0-9]{1,9})?")  # old programs wrote fractions


@dataclass(frozen=True)
class IndexRecord:
    """An index as repomd.xml lists it: `href` below the repository, hashes as (name, hex digits).

    `opened` is the hash of the unpacked file, None if it is not compressed.  Sizes are in bytes and
    limits if repomd.xml has none; `date` is in seconds since 1970.
    """

    kind: str
    href: str
    stored: tuple[str, str]
    opened: tuple[str, str] | None
    size: int
    open_size: int
    date: int

    @property
    def file_name(self) -> str:
        """Its name in the cache, with the ending that tells how it is compressed."""
        ending = ENDINGS.search(PurePosixPath(self.href).name)
        return f"{self.stored[1]}-{self.kind}{ending[0] if ending else ''}"


@dataclass(frozen=True)
class Repomd:
    """The repomd.xml of a repository; `repomd` is its sha256, `date` that of its newest index.

    Not `signed`: the repository has no signature of it.
    """

    repository: Repository
    date: int
    repomd: str
    signed: bool
    records: Mapping[str, IndexRecord]


@dataclass
class RawRecord:
    """A <data> element: texts by the names of their elements, attributes as `NAME/ATTRIBUTE`."""

    kind: str
    texts: dict[str, str] = field(default_factory=dict)


class RepomdReader:
    """Collects the <data> elements of a document; refuses what repomd.xml never has.

    Without a document type there are no entities, and so nothing that expands.
    """

    def __init__(self) -> None:
        self.records: list[RawRecord] = []
        self.path: list[str] = []

    def read(self, content: bytes) -> list[RawRecord]:
        """Raises ExpatError, and ValueError for what is not a repomd.xml."""
        # Whatever it claims to be in: expat would ask Python for any codec.
        parser = ParserCreate("UTF-8", " ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self.refuse
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.text
        parser.Parse(content, True)  # noqa: FBT003 - `isfinal`, by its place alone
        return self.records

    def refuse(self, *_: object) -> None:
        raise ValueError("it has a document type, which may define entities")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.path.append(name.rpartition(" ")[2])
        if len(self.path) == 1 and self.path != ["repomd"]:
            raise ValueError(f"its root is <{fit(self.path[0], 40)}>")
        if self.path == ["repomd", "data"]:
            self.records.append(RawRecord(attributes.get("type", "")))
            if len(self.records) > MOST_RECORDS:
                raise ValueError(f"it has more than {MOST_RECORDS} indexes")
        elif len(self.path) == 3 and self.path[1] == "data":
            for key, value in attributes.items():
                self.put(f"{self.path[2]}/{key.rpartition(' ')[2]}", value)

    def end(self, name: str) -> None:
        del name
        self.path.pop()

    def text(self, text: str) -> None:
        if len(self.path) == 3 and self.path[1] == "data":
            self.put(self.path[2], text)

    def put(self, key: str, value: str) -> None:
        texts = self.records[-1].texts
        texts[key] = texts.get(key, "") + value
        if len(texts[key]) > MOST_TEXT or len(texts) > MOST_RECORDS:
            raise ValueError("an index has a value that is too long")


def parse_repomd(content: bytes, repository: Repository, *, signed: bool) -> Repomd:
    """What repomd.xml says of the indexes that are read.

    Raises WorkError for one that is damaged or unusual in a way that matters: without a primary
    index, with SHA-1, with an address elsewhere, of an impossible size or time.
    """
    try:
        records = records_of(RepomdReader().read(content))
    except (ExpatError, ValueError) as error:
        raise WorkError(
            f"repomd.xml of {repository.name} cannot be used: {error}",
            where=f"source {repository.source.id}",
            hint="use another mirror, network or proxy; if every mirror has it, tell the owner of "
            "the repository",
        ) from error
    date = max(record.date for record in records.values())
    return Repomd(repository, date, digest_of_bytes(content), signed, records)


def records_of(raw: Sequence[RawRecord]) -> dict[str, IndexRecord]:
    """The indexes that are read, by kind.  Raises ValueError."""
    records = {each.kind: record_of(each) for each in raw if each.kind in WANTED}
    if PRIMARY not in records:
        raise ValueError("it has no primary index")
    return records


def record_of(raw: RawRecord) -> IndexRecord:
    """Raises ValueError."""
    texts = {key: text.strip() for key, text in raw.texts.items()}
    href = texts.get("location/href", "")
    if "location/base" in texts or not is_inside(href) or not ENDINGS.search(href):
        raise ValueError(f"its {raw.kind} index is elsewhere: {fit(href)}")
    most = WANTED[raw.kind]
    stored = hash_of(texts, "checksum", raw.kind)
    opened = hash_of(texts, "open-checksum", raw.kind) if "open-checksum" in texts else None
    when = SECONDS.fullmatch(texts.get("timestamp", ""))
    if not when or int(when[1]) >= END_OF_TIME:
        raise ValueError(f"its {raw.kind} index has no readable time")
    return IndexRecord(
        kind=raw.kind,
        href=href,
        stored=stored,
        opened=opened,
        size=size_of(texts, "size", min(most, MOST_STORED), raw.kind),
        open_size=size_of(texts, "open-size", most, raw.kind),
        date=int(when[1]),
    )


def hash_of(texts: Mapping[str, str], key: str, kind: str) -> tuple[str, str]:
    """A hash as (name, hex digits).  Raises ValueError."""
    name, value = texts.get(f"{key}/type", ""), texts.get(key, "").lower()
    if name not in HASHES:
        known = ", ".join(HASHES)
        raise ValueError(f"its {kind} index has a {key} of type {fit(name, 40)}, not of {known}")
    if not re.fullmatch(rf"[0-9a-f]{{{HASHES[name]}}}", value):
        raise ValueError(f"its {kind} index has a damaged {key}")
    return name, value


def size_of(texts: Mapping[str, str], key: str, most: int, kind: str) -> int:
    """A size in bytes, or the most if there is none.  Raises ValueError."""
    text = texts.get(key, str(most))
    if not NUMBER.fullmatch(text) or int(text) > most:
        raise ValueError(f"its {kind} index has an impossible {key}: {fit(text, 40)}")
    return int(text)
