# SPDX-License-Identifier: Apache-2.0
"""An engine that loads a file for each backend when it starts, and lists the devices they find.

It silently skips a missing file, or one whose libraries are missing (such as ggml's
ggml_backend_load_best), and then falls back to the processor.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.fallback import SAY
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.unanswered import CUT_OFF, prove_answered
from imagebuilder.recipe.engines import EngineKind
from imagebuilder.recipe.expectations import ExpectedEngine
from imagebuilder.recipe.model_engine import DevicesModel

MISSING = re.compile(
    r"^[ \t]*(?P<name>\S+) => not found|undefined symbol: (?P<symbol>[^\s,]+)", re.M
)
DEVICE = re.compile(r"^[ \t]+(?P<name>[A-Za-z]+\d+): (?P<what>.*)$", re.M)
SOFTWARE = ("llvmpipe", "swiftshader", "lavapipe", "softpipe")


def prove_plugins(subject: Subject, engine: ExpectedEngine, kind: EngineKind) -> Iterator[Finding]:
    """The file of each wanted backend exists and loads; without a device none is listed."""
    plugins, devices = kind.model.plugins, kind.model.devices
    faulty = False
    yield from prove_folder(subject, kind)
    for backend in engine.backends if plugins else ():
        for finding in prove_plugin(subject, kind, backend):
            faulty = True
            yield finding
    if faulty or not devices:
        return
    if engine.backends or subject.root.is_file(devices.command[0]):
        yield from prove_no_device(subject, kind.title, devices)


def prove_folder(subject: Subject, kind: EngineKind) -> Iterator[Finding]:
    """Warnings of files that a package ships beside its backends, and that were removed.

    An engine silently chooses among them, as ggml does among builds for the processor.
    """
    found = {path for glob in kind.files_of("*") for path in subject.root.glob(glob)}
    folders = {posixpath.dirname(path) for path in found}
    gone = sorted(
        path
        for path in subject.shipped
        if posixpath.dirname(path) in folders and not subject.root.lies(path)
    )
    if gone:
        yield SAY.warning(
            f"{kind.title} lacks {some(gone)}, which the package of its backends ships: it "
            "silently uses a slower one, or none",
            *(Evidence(path) for path in gone),
            hint="do not remove them (prune: of the recipe, scripts of overlays)",
        )


def prove_plugin(subject: Subject, kind: EngineKind, backend: str) -> Iterator[Finding]:
    """Faults only."""
    globs = kind.files_of(backend)
    found = [path for glob in globs for path in subject.root.glob(glob)]
    if not found:
        folder, _, rest = globs[0].partition("*")
        yield SAY.fault(
            f"{kind.title} has no backend {backend}, and would ignore that silently",
            Evidence(folder.rstrip("/"), said=f"no *{rest}"),
            hint=f"install {kind.package_of(backend)}, or remove {backend} from {kind.choice}",
        )
        return
    done = subject.run(["ldd", "-r", found[0]])
    if done.late or done.status == CUT_OFF:
        yield from prove_answered(SAY, done, f"whether {backend} loads", Evidence(found[0]))
        return
    lacks = [
        match["name"] or match["symbol"] for match in MISSING.finditer(done.stdout + done.stderr)
    ]
    if lacks or done.status:
        what = ", ".join(dict.fromkeys(lacks)) or (done.stderr.strip().splitlines() or ["?"])[-1]
        yield SAY.fault(
            f"the backend {backend} does not load, and {kind.title} would skip it silently",
            Evidence(found[0], section=".dynamic", said=f"lacks {what}"),
            hint="a package of the profile must provide it; see the question `libraries`",
        )


def prove_no_device(subject: Subject, title: str, devices: DevicesModel) -> Iterator[Finding]:
    """The engine runs, and lists no device if there is none."""
    program = devices.command[0]
    done = subject.run(devices.command)
    if done.late or done.status == CUT_OFF:
        unread = f"which devices {title} lists without one"
        yield from prove_answered(SAY, done, unread, Evidence(program))
    elif done.status:
        last = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.status}"]
        command = " ".join((posixpath.basename(program), *devices.command[1:]))
        yield SAY.fault(
            f"{posixpath.basename(program)} does not run: {last[-1]}",
            Evidence(program, said=f"exit status {done.status}"),
            hint=f"imagebuilder shell PROFILE -c '{command}' shows it",
        )
    if done.status:
        return
    for match in DEVICE.finditer(done.stdout + done.stderr):
        name, what = match["name"], match["what"]
        if name.startswith(tuple(devices.processor)):
            continue
        software = any(word in what.lower() for word in SOFTWARE)
        yield SAY.fault(
            f"{title} lists {'the processor' if software else name} as a device although there "
            "is none",
            Evidence(program, symbol=name, said=what),
            hint="remove software Vulkan with `prune: [/usr/share/vulkan/icd.d/lvp_icd.json]`",
        )
