# SPDX-License-Identifier: Apache-2.0
"""`engine:` of overlays: found for a recipe, or for an image by the names of its overlays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.model import OverlayFile
from imagebuilder.recipe.model_engine import EngineModel
from imagebuilder.recipe.part import Part, check_program, check_runs, find_inside
from imagebuilder.recipe.positions import KeyPath, load_document
from imagebuilder.recipe.read import OVERLAY_FILE
from imagebuilder.recipe.render import Scope
from imagebuilder.recipe.types import Overlay
from imagebuilder.recipe.validate import parse_model


@dataclass(frozen=True)
class EngineKind:
    """An engine as the overlay in `folder` describes it."""

    folder: Path
    model: EngineModel

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def title(self) -> str:
        return self.model.title or self.name

    @property
    def choice(self) -> str:
        """What a recipe sets to choose its backends."""
        return self.model.option or f"the vars of {self.folder.name}"

    def files_of(self, backend: str) -> tuple[str, ...]:
        """Globs of the paths that a backend may have; none if its backends are not files."""
        plugins = self.model.plugins
        return tuple(g.replace("{backend}", backend) for g in plugins.files) if plugins else ()

    def package_of(self, backend: str) -> str:
        named = self.model.plugins.package if self.model.plugins else ""
        return named.replace("{backend}", backend) or f"the backend {backend}"

    def program(self, name: str) -> Path:
        return self.folder / name


Engines = Mapping[str, EngineKind]


def load_engines(folders: Mapping[str, Path], overlays: Iterable[str]) -> Engines:
    """The engines that these overlays describe, by name; `folders` are those of all overlays.

    An overlay without a folder describes none.  Raises InputError.
    """
    found: dict[str, EngineKind] = {}
    for folder in (folders[name] for name in overlays if name in folders):
        faults: list[Fault] = []
        path = folder / OVERLAY_FILE
        file, sound = parse_model(OverlayFile, load_document(path, str(path)), faults)
        if file is None or not sound:
            raise InputError.of(faults)
        if file.engine:
            found[file.engine.name] = EngineKind(folder, file.engine)
    return found


def engines_of(overlays: Iterable[Overlay]) -> Engines:
    return {o.engine.name: EngineKind(o.path, o.engine) for o in overlays if o.engine}


def find_engine(engines: Engines, name: str) -> EngineKind:
    """The engine of that name, which an image expects.  Raises InputError."""
    if name not in engines:
        raise InputError(
            f"the image has the engine {name}, which no overlay of this project describes",
            hint="run this in the project that has the image's overlays (--project): one of them "
            "describes it under `engine:`",
        )
    return engines[name]


def check_engine_programs(part: Part, scope: Scope) -> None:
    """The programs that an engine's description names exist and can run."""
    engine = part.file.engine
    if engine and engine.platform:
        check_python(part, scope, ("engine", "platform", "program"), engine.platform.program)
    if engine and engine.boot:
        path: KeyPath = ("engine", "boot", "program")
        found = find_inside(part, scope, path, engine.boot.program)
        if found:
            check_runs(scope, path, engine.boot.program, found)
        path = ("engine", "boot", "model", "program")
        check_python(part, scope, path, engine.boot.model.program)


def check_python(part: Part, scope: Scope, path: KeyPath, name: str) -> None:
    found = find_inside(part, scope, path, name)
    if found:
        check_program(part, scope, found)


def check_engines(parts: Mapping[str, Part], faults: list[Fault]) -> None:
    """Each engine is described once, and each one that `proof:` names is described."""
    described: dict[str, str] = {}
    for part in parts.values():
        if part.file.engine is None:
            continue
        name = part.file.engine.name
        other = described.setdefault(name, part.name)
        option = part.file.engine.option
        if option and option not in part.file.vars:
            what = f"{quote(option)} is not a var of this overlay"
            hint = suggest(option, part.file.vars) or "declare it under `vars:`"
            faults.append(part.document.fault(("engine", "option"), what, hint))
        if other != part.name:
            what = f"the overlay {quote(other)} also describes the engine {quote(name)}"
            faults.append(part.document.fault(("engine", "name"), what, "keep one of them"))
    for part in parts.values():
        for index, expected in enumerate(part.file.proof.engines):
            if expected.engine not in described:
                path: KeyPath = ("proof", "engines", index, "engine")
                what = f"no overlay of the profile describes the engine {quote(expected.engine)}"
                hint = suggest(expected.engine, described) or "describe it under `engine:`"
                faults.append(part.document.fault(path, what, hint))
