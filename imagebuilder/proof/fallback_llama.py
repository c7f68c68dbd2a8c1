# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp can compute on: a plugin for each backend, found by looking into a folder.

A plugin that is missing, or whose libraries are, is passed over without a word
(ggml_backend_load_best in ggml's ggml-backend-reg.cpp): so the processor comes to stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.proof.fallback_say import SAY
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.types import Evidence, Finding
from imagebuilder.recipe.expectations import Engine

SERVER = "/usr/bin/llama-server"
PLUGINS = (
    "/usr/lib/*/ggml/*/libggml-{}.so",
    "/usr/lib/*/ggml/libggml-{}.so",
    "/usr/lib/*/libggml-{}.so",
    "/usr/local/lib/libggml-{}.so",
)
PACKAGES = {name: f"libggml0-backend-{name}" for name in ("hip", "vulkan", "cuda", "sycl")}
MISSING = re.compile(r"^\s*(?P<name>\S+) => not found|undefined symbol: (?P<symbol>[^\s,]+)", re.M)
# A line is "  ROCm0: NAME (TOTAL MiB, FREE MiB free)".
DEVICE = re.compile(r"^\s+(?P<name>[A-Za-z]+\d+): (?P<what>.*)$", re.M)
SOFTWARE = ("llvmpipe", "swiftshader", "lavapipe", "softpipe")


def prove_llama(subject: Subject, engine: Engine) -> Iterator[Finding]:
    """The plugin of each wanted backend is there and loads; without a device there is none."""
    if not engine.backends and not subject.root.is_file(SERVER):
        return
    faulty = False
    for backend in engine.backends:
        for finding in prove_plugin(subject, backend):
            faulty = True
            yield finding
    if not faulty:
        yield from prove_no_device(subject)


def prove_plugin(subject: Subject, backend: str) -> Iterator[Finding]:
    """Faults only."""
    found = [path for glob in PLUGINS for path in subject.root.glob(glob.format(backend))]
    if not found:
        yield SAY.fault(
            f"llama.cpp has no backend {backend}, and would pass it over in silence",
            Evidence("/usr/lib", said=f"no ggml/*/libggml-{backend}.so"),
            hint=f"install {PACKAGES.get(backend, f'the backend {backend}')}, or take {backend} "
            "out of llama_backends",
        )
        return
    done = subject.ask(["ldd", "-r", found[0]])
    lacks = [
        match["name"] or match["symbol"] for match in MISSING.finditer(done.stdout + done.stderr)
    ]
    if lacks or done.status:
        what = ", ".join(dict.fromkeys(lacks)) or (done.stderr.strip().splitlines() or ["?"])[-1]
        yield SAY.fault(
            f"the backend {backend} does not load, and llama.cpp would pass it over in silence",
            Evidence(found[0], section=".dynamic", said=f"lacks {what}"),
            hint="a package of the profile must bring it; the question libraries has more",
        )


def prove_no_device(subject: Subject) -> Iterator[Finding]:
    """The engine runs, and finds no device where there is none."""
    done = subject.ask([SERVER, "--list-devices"])
    if done.status:
        last = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.status}"]
        yield SAY.fault(
            f"llama-server does not run: {last[-1]}",
            Evidence(SERVER, said=f"exit status {done.status}"),
            hint="imagebuilder shell PROFILE -c 'llama-server --list-devices' shows it",
        )
        return
    for match in DEVICE.finditer(done.stdout + done.stderr):
        name, what = match["name"], match["what"]
        if name.startswith(("CPU", "BLAS")):
            continue
        software = any(word in what.lower() for word in SOFTWARE)
        yield SAY.fault(
            f"llama.cpp takes {'the processor in disguise' if software else name} for a device "
            "where there is none",
            Evidence(SERVER, symbol=name, said=what),
            hint="software Vulkan goes with `prune: [/usr/share/vulkan/icd.d/lvp_icd.json]`",
        )
