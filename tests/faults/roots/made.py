# SPDX-License-Identifier: Apache-2.0
"""Small good roots, one a vendor, made in a second: where faults of accelerators are planted.

They are fixtures: files of the right names, with the ELF sections in question and nothing else.  So
programs in them cannot run; what they would say is in `answers.json` beside the root, and a fault
may change it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from imagebuilder.digest import Json
from imagebuilder.image.types import ImageBoot, ImageWheel, encode_image
from imagebuilder.process import Completed
from imagebuilder.proof.libraries.prove import LOAD
from imagebuilder.proof.reading.report import MARK
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.types import Hardware
from imagebuilder.root import Root
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.images import IMAGE, packages_of

PREFIX = "made-"
VERSION = "20260101000000-00000000"
ANSWERS = "answers.json"


@dataclass(frozen=True)
class Answers:
    """What programs of a small root say: by the beginning of a command, the longest first.

    Of `env NAME=VALUE ... COMMAND` it is the command that counts, and a program's own text
    (`python -c TEXT`) is left out.  A value is what they print, `{status, stdout, stderr}`, or
    `{environment}`: what proof/python/report.py finds.  The loader is asked about each library:
    `load PATH`, and what it says of one that is not listed is that it loads.  As in a real root, a
    program that is not there, or whose interpreter is not, ends with exit status 127.
    """

    by_beginning: Mapping[str, str | Mapping[str, Any]]
    root: Root

    @classmethod
    def of(cls, folder: Path, root: Path) -> Answers:
        """Those that lie beside a root."""
        return cls(json.loads((folder / ANSWERS).read_text()), Root(root))

    def __call__(self, argv: Sequence[str], *, seconds: int = 60) -> Completed:
        """As Ask of a Subject."""
        del seconds
        words = without_environment(argv)
        if words[:3] == ["sh", "-c", LOAD]:
            return Completed(0, "".join(self.loading(path) for path in words[5:]), "")
        if why := self.cannot_run(words[0]):
            return why
        return self.answer(" ".join(word for word in words if "\n" not in word))

    def answer(self, command: str) -> Completed:
        """What is written for a command."""
        for begin in sorted(self.by_beginning, key=len, reverse=True):
            if command.startswith(begin):
                return completed(self.by_beginning[begin])
        return Completed(127, "", f"{command.split()[0]}: not found")

    def loading(self, path: str) -> str:
        """What LOAD prints of one library."""
        said = self.by_beginning.get(f"load {path}", "")
        assert isinstance(said, str)
        return f"library {path}\n{said}status {1 if said else 0}\n"

    def cannot_run(self, program: str) -> Completed | None:
        """How a program ends that cannot be started; None for one that can."""
        if not program.startswith("/"):
            return None
        host = self.root.host(program)
        if host is None or not host.is_file():
            return Completed(127, "", f"{program}: No such file or directory")
        if not host.stat().st_mode & 0o111:
            return Completed(126, "", f"{program}: Permission denied")
        first = host.read_bytes()[:128].partition(b"\n")[0].decode(errors="replace")
        if first.startswith("#!") and not self.root.is_file(first[2:].split()[0]):
            return Completed(127, "", f"{program}: No such file or directory")
        return None


def without_environment(argv: Sequence[str]) -> list[str]:
    """A command without `env` and the variables it sets."""
    words = list(argv)
    if words[0] == "env":
        del words[0]
        while "=" in words[0]:
            del words[0]
    return words


def completed(said: str | Mapping[str, Any]) -> Completed:
    """An answer as the end of a process."""
    if isinstance(said, str):
        return Completed(0, said, "")
    if "environment" in said:
        return Completed(0, f"\n{MARK}{json.dumps(said['environment'])}\n", "")
    return Completed(said.get("status", 0), said.get("stdout", ""), said.get("stderr", ""))


@dataclass(frozen=True)
class Made:
    """What a small root is the image of."""

    name: str
    kernel: str
    cmdline: tuple[str, ...]
    hardware: tuple[Hardware, ...]
    expectations: Expectations
    packages: Mapping[str, str]
    wheels: Sequence[tuple[str, str, str]]  # path of the environment, name, version
    answers: Mapping[str, Json]


def make_site_of(tree: Tree, made: Made) -> tuple[ReleaseName, Path]:
    """Enter a small root in a netboot tree as a release; its name, and the folder to fill."""
    release = ReleaseName(f"{PREFIX}{made.name}", VERSION)
    make_tree(tree.path)
    folder = tree.release(release)
    root = tree.root(release)
    for place in (folder, root):
        place.mkdir(parents=True)
    image = replace(
        IMAGE,
        profile=release.profile,
        version=release.version,
        kernel=replace(IMAGE.kernel, release=made.kernel),
        boot=ImageBoot("nfs", made.cmdline),
        hardware=made.hardware,
        expectations=made.expectations,
        packages=packages_of(made.packages),
        wheels=tuple(ImageWheel(name, version, "", path) for path, name, version in made.wheels),
    )
    (folder / "manifest.json").write_text(encode_image(image))
    (folder / ANSWERS).write_text(json.dumps(made.answers, indent=1))
    return release, root
