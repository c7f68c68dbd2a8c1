# SPDX-License-Identifier: Apache-2.0
"""A fault of the corpus: what is wrong, where that was seen, and which command must say so.

tests/faults/NAME/fault.yaml     the keys below
tests/faults/NAME/plant.py       plant(site) or spoil(stand), where `plant` cannot say it
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ruamel.yaml import YAML

from imagebuilder.image.proof import Question
from imagebuilder.report.types import Stage

CORPUS = Path(__file__).parent
CHECK, TEST, PROVE = "check", "test", "prove"
KINDS = ("image", "tree", "network", "accelerator")
UNTIL = (Stage.SSH, Stage.CHECKS, Stage.SHUTDOWN)
KEYS = frozenset(
    ("description", "source", "kind", "image", "plant", "caught-by", "stage", "check", "words",
     "also", "boot", "cheap", "question")
)  # fmt: skip


@dataclass(frozen=True)
class Boot:
    """How to boot a fault that only a boot shows.

    `way` is a firmware and a root, `words` are more words for the kernel, `memory` MiB (0: as the
    gate gives), `until` what a node does before we say that the fault was missed, `select` the
    boot checks to run, `at` the stage after which spoil() is called ("": before power-on).
    """

    way: str = "bios+http"
    words: tuple[str, ...] = ()
    memory: int = 0
    until: Stage = Stage.SSH
    select: str = ""
    at: str = ""

    @property
    def firmware(self) -> str:
        return self.way.partition("+")[0]

    @property
    def root(self) -> str:
        return self.way.partition("+")[2]


@dataclass(frozen=True)
class Fault:
    """One fault.

    `kind` is what it is planted into: image, tree (a release), network (what serves it), or
    accelerator (a small root of tests/faults/roots, whose `image` is `made-NAME`).  `caught` is
    check, test, prove, or the words of another command; `{name}` and `{tree}` in them are the
    release and its tree.  `question` is what `prove` must answer with no, and `also` those that
    may.  `stage` is where the gate must say that it failed, `words` a regular expression
    that its message must match, `check` the check that must fail and `also` those that may.
    `cheap` faults are booted by every run of the tests, the others by `make faults`.
    """

    name: str
    description: str
    source: str
    kind: str
    caught: str
    stage: Stage | None
    words: str
    image: str = "generic"
    plant: tuple[Mapping[str, Any], ...] = ()
    check: str = ""
    also: tuple[str, ...] = ()
    boot: Boot = field(default_factory=Boot)
    cheap: bool = False
    question: Question | None = None

    @property
    def boots(self) -> bool:
        """Whether a machine has to be switched on."""
        return self.caught == TEST

    @property
    def code(self) -> ModuleType | None:
        """Its plant.py."""
        path = CORPUS / self.name / "plant.py"
        if not path.exists():
            return None
        spec = importlib.util.spec_from_file_location(f"plant_{self.name.replace('-', '_')}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def load_faults(corpus: Path = CORPUS) -> tuple[Fault, ...]:
    """Every fault, by name.  Raises ValueError for one that is not written as it should be."""
    return tuple(load_fault(path) for path in sorted(corpus.glob("*/fault.yaml")))


def load_fault(path: Path) -> Fault:
    """The fault in one file.  Raises ValueError, with the fault's name."""
    name = path.parent.name
    value = YAML(typ="safe", pure=True).load(path)
    try:
        return parse_fault(name, value)
    except KeyError as error:
        raise ValueError(f"{name}: the key {error.args[0]} is missing") from error
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(f"{name}: ") else f"{name}: {text}") from error


def parse_fault(name: str, value: Mapping[str, Any]) -> Fault:
    if strange := set(value) - KEYS:
        raise ValueError(f"{name}: no such keys: {', '.join(sorted(strange))}")
    if value["kind"] not in KINDS:
        raise ValueError(f"{name}: kind is none of {', '.join(KINDS)}")
    boot = dict(value.get("boot", {}))
    boot["until"] = Stage(boot.get("until", Stage.SSH))
    if boot["until"] not in UNTIL:
        raise ValueError(f"{name}: until is none of {', '.join(UNTIL)}")
    caught = value["caught-by"]
    stage = value.get("stage", Stage.TREE if caught == CHECK else None)
    if (stage is None) == (caught in (CHECK, TEST)):
        raise ValueError(f"{name}: a boot test names a stage, a proof names none")
    question = value.get("question")
    if (question is None) == (caught == PROVE):
        raise ValueError(f"{name}: a proof names a question, other commands none")
    return Fault(
        name=name,
        description=value["description"],
        source=value["source"],
        kind=value["kind"],
        caught=caught,
        stage=stage and Stage(stage),
        words=value["words"],
        image=value.get("image", "generic"),
        plant=tuple(value.get("plant", ())),
        check=value.get("check", ""),
        also=tuple(value.get("also", ())),
        boot=Boot(**{**boot, "words": tuple(boot.get("words", ()))}),
        cheap=value.get("cheap", False),
        question=Question(question) if question else None,
    )
