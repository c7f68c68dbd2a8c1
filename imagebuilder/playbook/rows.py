# SPDX-License-Identifier: Apache-2.0
"""The JSON lines of our plugins and of programs in the root.

Any code of a playbook can write into these files too, so each line has a shape, and its texts are
cleaned and bounded before anybody shows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator

from imagebuilder.decode import decode_box, parse_object, read_or_say
from imagebuilder.errors import InputError, WorkError
from imagebuilder.phrases import list_first
from imagebuilder.untrusted import MOST_REQUEST, clean_lines, fit

HINT = "let no task of the playbook write into /run/imagebuilder or to the files of imagebuilder"
MOST_NAMED = 50  # in a note
T = TypeVar("T")
Word = Annotated[str, AfterValidator(fit)]
# A message of Ansible; the whole of it is in the log.
Words = Annotated[str, AfterValidator(lambda text: clean_lines(text[:MOST_REQUEST]))]


@dataclass(frozen=True)
class ToldRow:
    """What a callback tells: `event` says which of the others it has."""

    event: str
    play: Words = ""
    task: Words = ""
    where: Annotated[str, AfterValidator(lambda text: fit(text, MOST_REQUEST))] = ""
    what: Words = ""
    ok: int = 0
    changed: int = 0
    package: Word = ""
    why: Words = ""


@dataclass(frozen=True)
class SkippedRow:
    """What was left to the node: `verb` of a service."""

    kind: str
    what: Word
    verb: Word = ""


def read_rows(path: Path, kind: type[T]) -> list[T]:
    """The lines of a file; none without one.  Raises WorkError for a line of another shape."""
    if not path.exists():
        return []
    try:
        return [
            decode_box(kind, parse_object(line, path.name, whole=True), path.name)
            for line in read_or_say(path, "").splitlines()
        ]
    except InputError as error:
        what = "the playbook damaged a file that imagebuilder needs"
        raise WorkError(f"{what}: {error.faults[0].what}", where=path.name, hint=HINT) from error


def list_words(words: Iterable[str]) -> str:
    """Different words in one line: the first ones, and the number of others."""
    return list_first(dict.fromkeys(words), MOST_NAMED)
