# SPDX-License-Identifier: Apache-2.0
"""Variables and options with which a program does not work: packages that its Python environment
does not have, docstrings that are removed, and folders and programs that are not there.

Optional packages are required by no distribution, and what needs one fails when it is used.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.reading import scripts
from imagebuilder.proof.reading.accounts import account_of
from imagebuilder.proof.reading.environment import Environment, environment_of
from imagebuilder.proof.reading.mounts import made_by, made_by_tmpfiles
from imagebuilder.proof.reading.python import Distribution, installed, package_folder, site_packages
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.texts import unquoted, whole
from imagebuilder.proof.reading.units import BINARIES, find_program, is_below, unit_paths
from imagebuilder.proof.services.devices import WHO, session_environment
from imagebuilder.proof.services.start import appears_later, is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import find_engine

ON = r"(?i)1|on|yes|true"
VARIABLE, ALL = "PYTHONOPTIMIZE", 2
PACKAGES = ("transformers", "torch")
# Options of Python without a value, alone or together (python(1)); -E and -I ignore variables.
FLAGS = re.compile(r"-[bBdEhiIOPqRsSuvVx]+")
# Where a runtime or an interpreter is installed, and what uses it looks nowhere else.
HOMES = re.compile(
    r"XILINX_XRT|ROCM_(PATH|HOME)|HIP_PATH|CUDA_(HOME|PATH)|ONEAPI_ROOT|JAVA_HOME|VIRTUAL_ENV|"
    r"CONDA_PREFIX"
)
TEMPORARY = frozenset(("TMPDIR", "TMP", "TEMP"))
# What compilers and libraries make while they compute; models are read, and may lie in the image.
CACHES = re.compile(
    r"(TRITON|TORCHINDUCTOR|NUMBA|SYCL|NEO|MESA_SHADER|VLLM|AMD_COMGR|XDG|FLASHINFER|DEEPGEMM)"
    r"_CACHE(_DIR|_ROOT|_HOME|_PATH)?|CUDA_CACHE_PATH|MIOPEN_(USER_DB_PATH|CUSTOM_CACHE_DIR)|"
    r"MPLCONFIGDIR|TORCH_EXTENSIONS_DIR"
)
# What ProtectSystem= makes read-only (systemd.exec(5)); with strict, it is everything.
PROTECTED = {"yes": ("/usr", "/boot", "/efi"), "full": ("/usr", "/boot", "/efi", "/etc")}
STRICT_EXCEPT = ("/dev", "/proc", "/sys")
OPENED = ("ReadWritePaths", "BindPaths", "TemporaryFileSystem")
HOME_FOLDERS = ("/home", "/root", "/run/user")
WRITE = 0o2
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


@dataclass(frozen=True)
class ExtraPackage:
    """A variable with whose value (a regular expression) versions `versions` of `reader` use the
    distribution `needs`; `fails` says what happens without it.
    """

    variable: str
    value: str
    reader: str
    versions: str
    needs: str
    fails: str
    source: str


EXTRAS = (
    ExtraPackage("HF_HUB_ENABLE_HF_TRANSFER", ON, "huggingface-hub", "<1", "hf-transfer",
                 "it refuses downloads over HTTP",
                 "http_get() of src/huggingface_hub/file_download.py, version 0.36"),
    ExtraPackage("VLLM_USE_MODELSCOPE", ON, "vllm", "", "modelscope", "it loads no model",
                 "vllm/transformers_utils/__init__.py"),
    ExtraPackage("SGLANG_USE_MODELSCOPE", ON, "sglang", "", "modelscope", "it loads no model",
                 "sglang/srt/utils/common.py"),
    ExtraPackage("ACCELERATE_USE_DEEPSPEED", ON, "accelerate", "", "deepspeed",
                 "it does not start", "accelerate/accelerator.py"),
    *(ExtraPackage("KERAS_BACKEND", name, "keras", ">=3", name, "it does not import",
                   "keras.io, Configuring your backend")
      for name in ("jax", "torch")),
)  # fmt: skip


def prove_extras(subject: Subject) -> Findings:
    """Warnings of variables that ask for a package which the environment does not have."""
    for unit in subject.startup.starting():
        environment = environment_of(subject, unit)
        rows = [row for row in EXTRAS if row.variable in environment]
        for path in environments_of(subject, unit) if rows else ():
            site = site_packages(subject.root, path)
            there = installed(subject.root, site) if site else {}
            for row in rows:
                variable = environment[row.variable]
                is_set = re.fullmatch(row.value, variable.value.strip())
                if is_set and is_lacking(row, there):
                    reader = there[row.reader]
                    what = f"{unit.name} has {row.variable}={variable.value}, but {path} has no "
                    what += f"{row.needs}: {reader.name} {reader.version} needs it for that, and "
                    what += row.fails
                    where = (variable.evidence(row.variable), Evidence(reader.path))
                    hint = f"remove the variable, or add {row.needs} to the environment"
                    yield warning(what, *where, hint=hint)


def is_lacking(row: ExtraPackage, there: Mapping[str, Distribution]) -> bool:
    """Whether a version that uses the package is there without it."""
    reader = there.get(row.reader)
    if reader is None or row.needs in there:
        return False
    try:
        return Version(reader.version) in SpecifierSet(row.versions, prereleases=True)
    except InvalidVersion:
        return False


def environments_of(subject: Subject, unit: LoadedUnit) -> Iterator[str]:
    """The Python environments of a unit's programs, by their folder or their interpreter's."""
    found: dict[str, None] = {}
    for words in unit.lines:
        started = find_program(subject.root, words[0]) or words[0]
        first = scripts.first_line(subject.root.map(started))
        interpreter = first[0] if first and scripts.runs(scripts.PYTHON, first) else started
        for program in (started, interpreter):
            folder = posixpath.dirname(posixpath.dirname(program))
            if folder.count("/") > 1 or subject.root.is_file(f"{folder}/pyvenv.cfg"):
                found[folder] = None
    yield from found


def prove_docstrings(subject: Subject) -> Findings:
    """Warnings of services whose Python removes docstrings, which their packages format when they
    are imported: a version of the packages may work without them.

    `-OO` and PYTHONOPTIMIZE=2 do (Python, "Command line and environment").  transformers then ends
    with an AttributeError on None (huggingface/transformers #36045, #38323, #42279), and PyTorch's
    own decorators did (pytorch/pytorch #76034).
    """
    for unit in scripts.starting_units(subject):
        environment = environment_of(subject, unit)
        by = removed_by(unit, environment)
        package = find_package(subject, unit) if by else ""
        if by and package:
            what = f"{by.said} removes docstrings, and {unit.name} does not start: {package} "
            what += "works with them when it is imported"
            yield warning(what, by, hint="remove it: Python starts no faster with it")


def removed_by(unit: LoadedUnit, environment: Environment) -> Evidence | None:
    """What makes a service's Python remove docstrings."""
    flags = ""
    for words in unit.commands.get("ExecStart", ()):
        flags = flags_of(words)
        if flags.count("O") >= ALL:
            return Evidence(unit.place, said=" ".join(words[:2]))
    variable = environment.get(VARIABLE)
    if variable and whole(variable.value.strip()) >= ALL and not {"E", "I"} & set(flags):
        return variable.evidence(VARIABLE)
    return None


def flags_of(words: Sequence[str]) -> str:
    """The letters of Python's own options in a command line."""
    if not words or not scripts.INTERPRETER.fullmatch(posixpath.basename(words[0])):
        return ""
    flags = ""
    for word in words[1:]:
        if not FLAGS.fullmatch(word):
            break
        flags += word[1:]
    return flags


def find_package(subject: Subject, unit: LoadedUnit) -> str:
    """The package that a service imports and that needs docstrings, "" if none is known."""
    for engine in subject.expectations.engines:
        platform = find_engine(subject.engines, engine.engine).model.platform
        if engine.unit == unit.name and platform:
            return platform.module
    commands = unit.commands.get("ExecStart", ())
    found = (each for words in commands for each in PACKAGES
             if package_folder(subject.root, words, each))  # fmt: skip
    return next(found, "")


def prove_places(subject: Subject) -> Findings:
    """Warnings: a program may do without what it does not find."""
    yield from prove_there(subject, WHO, session_environment(subject.root), frozenset())
    units = {service.name: service.unit for service in scripts.site_services(subject)}
    for unit in units.values():
        environment = environment_of(subject, unit)
        own = frozenset(made_by(unit))
        yield from prove_there(subject, unit.name, environment, own)
        for name, variable in environment.items():
            path = variable.value.rstrip("/")
            if not CACHES.fullmatch(name) or not is_plain(path) or covers(own, path):
                continue
            if why := unwritable(subject, unit, path):
                what = f"{unit.name} cannot write to {path} ({name}): {why}"
                hint = "use a folder below /var/cache, with CacheDirectory= in the unit"
                yield warning(what, variable.evidence(name), hint=hint)


def prove_there(
    subject: Subject, who: str, environment: Environment, own: frozenset[str]
) -> Findings:
    for name, variable in environment.items():
        path = variable.value.rstrip("/")
        is_home = HOMES.fullmatch(name)
        if not is_plain(path) or not (is_home or name in TEMPORARY) or covers(own, path):
            continue
        if is_missing(subject, path):
            what = f"{name}={variable.value} of {who} names a folder that is not in the image"
            hint = "remove that variable, or name the folder where it is installed"
            if not is_home:
                what += ": temporary files cannot be made there"
                hint = "remove that variable, or make the folder: tmpfiles.d(5)"
            yield warning(what, variable.evidence(name), hint=hint)


def is_plain(path: str) -> bool:
    return path.startswith("/") and not re.search(r"[$%:\s]", path)


def covers(folders: frozenset[str], path: str) -> bool:
    return any(is_below(path, folder) for folder in folders)


def is_missing(subject: Subject, path: str) -> bool:
    """Whether a node has nothing at a path, by the image, tmpfiles.d and mounts."""
    if is_there(subject, path):
        return False
    return not any(is_below(made, path) for made in made_by_tmpfiles(subject))


def unwritable(subject: Subject, unit: LoadedUnit, path: str) -> str:
    """Why a unit cannot make files at a path, "" if it can or if the image does not say."""
    if appears_later(subject, f"{path}/"):
        return ""
    if why := protected(unit, path):
        return why
    account = account_of(unit, subject.accounts)
    if account is None:
        return ""
    above = path
    while not subject.root.lies(above):
        above = posixpath.dirname(above)
    if any(is_below(path, made) and is_below(made, above) and made != above
           for made in made_by_tmpfiles(subject)):  # fmt: skip
        return ""
    info = subject.entries.get(subject.root.resolve(above) or above)
    if info is None:
        return ""
    if account.may(info, WRITE):
        return ""
    return f"{above} does not belong to {account.name or 'its dynamic account'}"


def protected(unit: LoadedUnit, path: str) -> str:
    allowed = frozenset(each.target for each in unit_paths(unit, *OPENED))
    if covers(allowed, path):
        return ""
    system = unit.last("ProtectSystem")
    if system == "strict" and not covers(frozenset(STRICT_EXCEPT), path):
        return "ProtectSystem=strict"
    if covers(frozenset(PROTECTED.get(system, ())), path):
        return f"ProtectSystem={system}"
    if unit.last("ProtectHome") in ("yes", "read-only") and covers(frozenset(HOME_FOLDERS), path):
        return f"ProtectHome={unit.last('ProtectHome')}"
    if covers(frozenset(p.source for p in unit_paths(unit, "ReadOnlyPaths")), path):
        return "ReadOnlyPaths="
    return ""


def prove_tools(subject: Subject) -> Findings:
    """Warnings, each variable of a file once: the service may never start the program."""
    told: set[tuple[str, str]] = set()
    environments = [(WHO, session_environment(subject.root))]
    units = scripts.starting_units(subject)
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
            yield warning(f"{what}{why}", variable.evidence(name), hint=hint)


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
