# SPDX-License-Identifier: Apache-2.0
"""`proof:` of an overlay, resolved: what it expects of the image."""

from __future__ import annotations

from collections.abc import Sequence

from imagebuilder.recipe.expectations import (
    Code,
    Device,
    Engine,
    Expectations,
    PythonWorks,
    Service,
)
from imagebuilder.recipe.model_proof import (
    CodeModel,
    EngineProofModel,
    ProofModel,
    PythonProofModel,
)
from imagebuilder.recipe.positions import KeyPath
from imagebuilder.recipe.render import Scope
from imagebuilder.recipe.rules import (
    ACCOUNT,
    BACKEND,
    BELOW,
    GLOB,
    MODULE,
    PLACE,
    TARGET,
    UNIT,
    VERSION,
)


def render_expectations(model: ProofModel, scope: Scope) -> Expectations:
    """What an overlay expects; what is wrong is in the scope's faults."""
    top: KeyPath = ("proof",)
    cuda = scope.text((*top, "cuda"), model.cuda)
    if cuda:
        cuda = scope.text((*top, "cuda"), model.cuda, VERSION)
    return Expectations(
        modules=scope.entries((*top, "modules"), model.modules, MODULE),
        firmware=scope.entries((*top, "firmware"), model.firmware, BELOW),
        code=tuple(
            code
            for number, each in enumerate(model.code)
            if (code := render_code(each, (*top, "code", number), scope))
        ),
        libraries=scope.entries((*top, "libraries"), model.libraries, PLACE),
        cuda=(cuda,) if cuda else (),
        python=tuple(
            works
            for number, each in enumerate(model.python)
            if (works := render_python_works(each, (*top, "python", number), scope))
        ),
        devices=tuple(
            Device(each.path, each.group)
            for number, each in enumerate(model.devices)
            if scope.holds((*top, "devices", number, "when"), each.when)
        ),
        users=scope.entries((*top, "users"), model.users, ACCOUNT),
        services=tuple(
            Service(each.unit, each.memlock)
            for number, each in enumerate(model.services)
            if scope.holds((*top, "services", number, "when"), each.when)
            and scope.text((*top, "services", number, "unit"), each.unit, UNIT)
        ),
        engines=tuple(
            engine
            for number, each in enumerate(model.engines)
            if (engine := render_engine(each, (*top, "engines", number), scope))
        ),
    )


def render_code(model: CodeModel, path: KeyPath, scope: Scope) -> Code | None:
    """Which files carry code for which target; None where it does not apply."""
    if not scope.holds((*path, "when"), model.when):
        return None
    target = scope.text((*path, "target"), model.target, TARGET)
    files = globs((*path, "files"), model.files, scope)
    return Code(files, target, model.accept) if target and files else None


def globs(path: KeyPath, templates: Sequence[str], scope: Scope) -> tuple[str, ...]:
    """Each template as a glob of absolute paths."""
    found = (scope.text((*path, n), template, GLOB) for n, template in enumerate(templates))
    return tuple(glob for glob in found if glob)


def render_python_works(model: PythonProofModel, path: KeyPath, scope: Scope) -> PythonWorks | None:
    """What an environment must be able to do; None where it does not apply."""
    if not scope.holds((*path, "when"), model.when):
        return None
    target = scope.text((*path, "target"), model.target)
    if target:
        target = scope.text((*path, "target"), model.target, TARGET)
    if target is None:
        return None
    return PythonWorks(model.path, tuple(model.imports), model.platform, model.cuda, target)


def render_engine(model: EngineProofModel, path: KeyPath, scope: Scope) -> Engine | None:
    """What an engine computes on; None where it does not apply."""
    if not scope.holds((*path, "when"), model.when):
        return None
    place = scope.text((*path, "path"), model.path, PLACE) if model.path else ""
    unit = scope.text((*path, "unit"), model.unit, UNIT) if model.unit else ""
    if place is None or unit is None:
        return None
    return Engine(
        engine=model.engine,
        backends=scope.entries((*path, "backends"), model.backends, BACKEND),
        path=place,
        unit=unit,
        allow_cpu=scope.holds((*path, "allow-cpu"), model.allow_cpu),
    )
