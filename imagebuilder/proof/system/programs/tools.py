# SPDX-License-Identifier: Apache-2.0
"""Variables of services and logins whose value is a program: it must be in the image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Finding
from imagebuilder.proof.reading.environment import Environment, environment_of
from imagebuilder.proof.reading.quotes import unquoted
from imagebuilder.proof.reading.site import starting_units
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.reading.units import BINARIES
from imagebuilder.proof.services.sessions import WHO, session_environment
from imagebuilder.proof.services.start import appears_later, is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# Names of variables, and what uses the program.  Triton takes CC before gcc and clang, and its
# own assembler before the one in its package (triton-lang/triton, runtime/build.py, knobs.py);
# PyTorch CXX and PYTORCH_NVCC (torch.utils.cpp_extension); CMake the compilers of CUDA and HIP
# (cmake-env-variables(7)).  The others: environ(7), git(1), man(1), systemd(1), mpicc(1).
COMPILES = "what compiles kernels fails at the first one"
PROGRAMS = (
    (re.compile(r"CC|CXX|CUDACXX|CUDAHOSTCXX|HIPCXX|HIPHOSTCXX|PYTORCH_NVCC|NVCC|HIPCC|"
                r"TRITON_(PTXAS|PTXAS_BLACKWELL|CUOBJDUMP|NVDISASM)_PATH|(OMPI|MPICH)_C(C|XX)"),
     COMPILES),
    (re.compile(r"(MAN|GIT_|SYSTEMD_)?PAGER|(GIT_|SYSTEMD_|SUDO_)?EDITOR|VISUAL|GIT_SSH|"
                r"(GIT|SSH|SUDO)_ASKPASS|RSYNC_RSH"),
     "commands that start it fail"),
)  # fmt: skip
SET_LATER = re.compile(r"[$%`=]")


def prove_tools(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings, each variable of a file once: the service may never start the program."""
    told: set[tuple[str, str]] = set()
    environments = [(WHO, session_environment(subject.root))]
    units = starting_units(subject, startup)
    environments += [(unit.name, environment_of(subject, unit)) for unit in units]
    for who, environment in environments:
        for name, variable in environment.items():
            why = next((why for names, why in PROGRAMS if names.fullmatch(name)), "")
            program = next(iter(unquoted(variable.value)), "") if why else ""
            known = (name, variable.path) in told or variable.path in subject.shipped
            if not program or known or is_found(subject, program, environment):
                continue
            told.add((name, variable.path))
            what = f"{name}={variable.value} of {who} names a program that is not in the image: "
            hint = "name one of the image, install its package, or remove the variable"
            yield SAY.warning(f"{what}{why}", variable.evidence(name), hint=hint)


def is_found(subject: Subject, program: str, environment: Environment) -> bool:
    """Whether a node may have a program: at its path, or in a folder of PATH."""
    if SET_LATER.search(program):
        return True
    if "/" in program:
        return is_there(subject, program)
    search = environment.get("PATH")
    folders = search.value.split(":") if search else BINARIES
    return any(
        SET_LATER.search(folder)
        or subject.root.is_file(f"{folder}/{program}")
        or (not subject.root.is_dir(folder) and appears_later(subject, f"{folder}/{program}"))
        for folder in folders
    )
