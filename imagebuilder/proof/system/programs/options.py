# SPDX-License-Identifier: Apache-2.0
"""Options of a site's command lines that their program does not have, and variables that nobody
reads: nearly the name of one that a runtime reads, or gone from the package whose name they begin
with.

After an update a daemon ends at a flag that it no longer knows.  A program compares options with
their names, so each is a text in it or in a library that it loads: one that is nowhere there is no
option of it.  They pass over variables that they do not know, and say nothing.
"""

from __future__ import annotations

import mmap
import posixpath
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import takewhile

from imagebuilder.elf import MAGIC, Needs
from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.reading.environment import Variable, environment_of, expanded, files_of
from imagebuilder.proof.reading.libraries import search_of
from imagebuilder.proof.reading.python import package_folder
from imagebuilder.proof.reading.scripts import INTERPRETER, SHELL, first_line, runs
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.say import some
from imagebuilder.proof.services.devices import session_environment
from imagebuilder.proof.services.selectors import EMULATIONS, HINDRANCES, SELECTORS, SHARED
from imagebuilder.proof.services.settings import words_of
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import find_engine
from imagebuilder.root import Root

KEYS = ("ExecStartPre", "ExecStart")
OPTION = re.compile(r"--([A-Za-z][\w-]{2,})")
# Their options may be those of what they run, or be read by code that is not in the program.
RUNNERS = re.compile(
    rf"{INTERPRETER.pattern}|uv|npx|xargs|ssh|mpirun|docker|podman|nerdctl|ctr|crictl|ip|nsenter|"
    r"unshare|chroot|bwrap|sudo|su|runuser|setpriv|numactl|taskset|chrt|nice|ionice|timeout|stdbuf|"
    r"flock|systemd-\w+|dbus-run-session"
)
# What libraries of C and frameworks have for every program.
EVERY = frozenset(("help", "usage", "version"))
# A script that asks for none of its words starts with any.
ASKS = re.compile(rb"\$\{?[1-9#]|\b(getopts?|shift)\b")
# What starts another program, which may read the options, is a small program that has one of these.
STARTS = re.compile(rb"\0(exec[vl]p?e?|fexecve|posix_spawnp?|dlm?open)\0")
MOST_STUB = 64 << 10  # bytes
PASSES_ON = re.compile(rb"\$[@*]|\$\{[@*]")
# Libraries of the compiler and of C read no options, but have many words.
PLAIN = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|resolv)\.so).*")
MOST = 60  # libraries of a program
# From the documents of NCCL, CUDA, ROCm, PyTorch, OpenMP, the Hugging Face Hub, vLLM, Ollama, Mesa,
# the loaders of Vulkan and Level Zero, UCX, Ray and Python.
OTHERS = """\
CUDA_CACHE_MAXSIZE CUDA_CACHE_PATH CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_HOME
CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PIPE_DIRECTORY CUDA_PATH NVIDIA_DRIVER_CAPABILITIES
NVIDIA_VISIBLE_DEVICES HIP_PATH HSA_ENABLE_SDMA HSA_OVERRIDE_GFX_VERSION HSA_XNACK ROCM_HOME
ROCM_PATH ROCBLAS_TENSILE_LIBPATH AMD_VULKAN_ICD GLOO_SOCKET_IFNAME MASTER_ADDR MASTER_PORT
NCCL_ALGO NCCL_BUFFSIZE NCCL_CROSS_NIC NCCL_DEBUG NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_HCA
NCCL_IB_RETRY_CNT NCCL_IB_TIMEOUT NCCL_MAX_NCHANNELS NCCL_MIN_NCHANNELS NCCL_NET_GDR_LEVEL
NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_PROTO NCCL_SHM_DISABLE NCCL_SOCKET_IFNAME NCCL_TOPO_FILE
UCX_NET_DEVICES UCX_TLS PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF
PYTORCH_ROCM_ARCH PYTORCH_TUNABLEOP_ENABLED TORCHINDUCTOR_CACHE_DIR TORCH_CUDA_ARCH_LIST
TORCH_EXTENSIONS_DIR TORCH_HOME TRITON_CACHE_DIR OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND
MKL_NUM_THREADS OPENBLAS_NUM_THREADS KMP_AFFINITY HF_DATASETS_CACHE HF_ENDPOINT HF_HOME HF_HUB_CACHE
HF_HUB_OFFLINE HF_TOKEN HF_TOKEN_PATH HUGGING_FACE_HUB_TOKEN TRANSFORMERS_CACHE TRANSFORMERS_OFFLINE
TOKENIZERS_PARALLELISM VLLM_API_KEY VLLM_CACHE_ROOT VLLM_CONFIG_ROOT VLLM_HOST_IP VLLM_LOGGING_LEVEL
VLLM_NO_USAGE_STATS VLLM_WORKER_MULTIPROC_METHOD OLLAMA_CONTEXT_LENGTH OLLAMA_FLASH_ATTENTION
OLLAMA_HOST OLLAMA_KEEP_ALIVE OLLAMA_MODELS OLLAMA_NUM_PARALLEL LLAMA_CACHE LD_LIBRARY_PATH
LD_PRELOAD XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR VK_ADD_DRIVER_FILES
VK_DRIVER_FILES VK_ICD_FILENAMES VK_LOADER_DRIVERS_DISABLE VK_LOADER_DRIVERS_SELECT
MESA_SHADER_CACHE_DIR MESA_SHADER_CACHE_DISABLE MESA_VK_DEVICE_SELECT OCL_ICD_VENDORS ONEAPI_ROOT
RADV_PERFTEST SYCL_CACHE_DIR SYCL_CACHE_PERSISTENT ZES_ENABLE_SYSMAN ZE_ENABLE_ALT_DRIVERS
XILINX_XRT RAY_ADDRESS RAY_TMPDIR PYTHONHOME PYTHONPATH PYTHONUNBUFFERED REQUESTS_CA_BUNDLE
SSL_CERT_DIR SSL_CERT_FILE HTTPS_PROXY HTTP_PROXY NO_PROXY KUBECONFIG
"""
DATA = (*HINDRANCES, *SHARED, *EMULATIONS)
KNOWN = frozenset(
    {*OTHERS.split(), *(s.variable for s in SELECTORS), *(row.variable for _, row in DATA)}
)
# Names that differ by less are one letter apart, or two in a long one.  HTTPS_PROXY is so near to
# HTTP_PROXY: both are known.
NEAR = 0.9
# Values of another form than the variable's: BACKEND:DEVICE (intel/llvm, EnvironmentVariables.md).
INVALID = {"ONEAPI_DEVICE_SELECTOR": r"[^;]*:[^;]*:.*"}
SHORTEST = 7  # of a name: three of four letters say nothing
READABLE = re.compile(r".+\.(py|so(\.[\d.]+)?)")
HINT = "correct its name, or remove it"


def prove_options(subject: Subject) -> Findings:
    """Faults of options that a program does not have; warnings if it has none of the line's, if it
    may only start another one, or if a variable leads it to libraries that may be others than those
    that were read.
    """
    engines = {engine.unit for engine in subject.expectations.engines}
    for unit in subject.startup.starting():
        sources = [*unit.paths, *files_of(subject.root, unit)]
        if unit.name in engines or all(path in subject.shipped for path in sources):
            continue
        environment = environment_of(subject, unit)
        for key in KEYS:
            for words in unit.commands.get(key, ()):
                command = expanded(words, environment)
                is_sure = "LD_LIBRARY_PATH" not in environment
                yield from prove_command(subject, unit, key, command, is_sure=is_sure)


def prove_command(
    subject: Subject, unit: LoadedUnit, key: str, words: Sequence[str], *, is_sure: bool
) -> Findings:
    program = find_program(subject.root, words[0]) if words else ""
    names = list(dict.fromkeys(options_of(subject.root, words[1:])))
    if not program or not names or RUNNERS.fullmatch(posixpath.basename(program)):
        return
    texts = texts_of(subject, program)
    unknown = [name for name in names if texts and not any(has(name, text) for text in texts)]
    hint = "remove it, or look up its new name with --help"
    place = (unit.paths or (program,))[-1]
    if unknown and len(unknown) == len(names):
        # A program that is packed, or a wrapper, has none of its options as a text.
        listed = some(f"--{name}" for name in names)
        what = (
            f"{unit.name} might not start: {program} contains none of its options: {listed} "
            f"({key}=)"
        )
        yield warning(what, Evidence(place, said=listed), hint=hint)
        return
    is_sure = is_sure and bool(texts) and not is_stub(texts[0])
    for name in unknown:
        how = "does not start" if is_sure else "might not start"
        what = f"{unit.name} {how}: {program} has no option --{name} ({key}=)"
        say = fault if is_sure else warning
        yield say(what, Evidence(place, said=f"--{name}"), hint=hint)


def is_stub(program: mmap.mmap | bytes) -> bool:
    """Whether a program is so small that it may do no more than start another one."""
    return len(program) <= MOST_STUB and STARTS.search(program) is not None


def options_of(root: Root, words: Sequence[str]) -> Iterator[str]:
    """The names of long options, up to what another program gets."""
    for word in takewhile(lambda word: word != "--" and not root.is_file(word), words):
        if (found := OPTION.match(word)) and found[1] not in EVERY:
            yield found[1]


def texts_of(subject: Subject, program: str) -> list[mmap.mmap | bytes]:
    """The program and the libraries that it loads; none if it may get options from elsewhere."""
    first = subject.root.map(program) or b""
    if first[: len(MAGIC)] != MAGIC:
        is_shell = runs(SHELL, first_line(first))
        reads_all = is_shell and ASKS.search(first) and not PASSES_ON.search(first)
        return [first] if reads_all else []
    search = search_of(subject)
    found, queue = {program: first}, [subject.root.resolve(program) or program]
    while queue:
        path = queue.pop()
        needs = search.files.native.get(path, Needs(0, 0))
        for name in needs.needed:
            if PLAIN.fullmatch(name):
                continue
            library = search.find(name, path, needs)
            if not library or len(found) > MOST:
                return []
            if library not in found:
                found[library] = subject.root.map(library) or b""
                queue.append(library)
    return list(found.values())


def has(name: str, text: mmap.mmap | bytes) -> bool:
    """Whether an option can be one of a program: also as `no_name`, or negated."""
    plain = name.removeprefix("no-")
    return any(text.find(each.encode()) >= 0 for each in (name, plain, plain.replace("-", "_")))


def prove_variables(subject: Subject) -> Findings:
    """Warnings of variables of services and of logins, each of a file once.

    An engine's variables are compared with what the engine reads (prove_known()).
    """
    told: set[tuple[str, str]] = set()
    engines = dict(find_engine_words(subject))
    for unit in subject.startup.starting():
        for name, variable in environment_of(subject, unit).items():
            is_told = (name, variable.path) in told or variable.path in subject.shipped
            prefix, words = engines.get(unit.name, ("\0", KNOWN))
            if is_told or name.startswith(prefix):
                continue
            found = [*prove_variable(subject, unit, name, variable, words)]
            told |= {(name, variable.path) for _ in found}
            yield from found
    for name, variable in session_environment(subject.root).items():
        near = nearest(name) if variable.path not in subject.shipped else ""
        if near and (name, variable.path) not in told:
            what = f"{variable.path} sets {name} for everybody who logs in: it is nearly {near}, "
            yield warning(f"{what}which programs read", variable.evidence(name), hint=HINT)


def find_engine_words(subject: Subject) -> Iterator[tuple[str, tuple[str, frozenset[str]]]]:
    """The units of engines: how their variables begin, and the known names with those."""
    for engine in subject.expectations.engines:
        words = find_engine(subject.engines, engine.engine).model.words
        if words and words.prefix:
            texts = map(str.upper, words_of(subject.root, words.variables))
            names = {text for text in texts if text.startswith(words.prefix)}
            yield engine.unit, (words.prefix, KNOWN | names)


def prove_variable(
    subject: Subject, unit: LoadedUnit, name: str, variable: Variable, known: frozenset[str]
) -> Findings:
    if re.fullmatch(INVALID.get(name, "(?!)"), variable.value):
        what = f"{unit.name} has {name}={variable.value}, which its runtime refuses"
        hint = "see the documentation of that variable for the form of its value"
        yield warning(what, variable.evidence(name), hint=hint)
        return
    near, package = nearest(name, known), find_package(subject.root, unit, name)
    if not (near or package) or is_read(subject, unit, name):
        return
    if package and not is_in_package(subject.root, package, name):
        what = f"{unit.name} sets {name}, which {package} does not contain: it has no effect"
        hint = "remove it, or look up what replaced it"
        yield warning(what, variable.evidence(name), Evidence(package), hint=hint)
    elif near and not package:
        what = f"{unit.name} sets {name}, which its program does not contain: it is nearly {near}"
        yield warning(what, variable.evidence(name), hint=HINT)


@cache
def nearest(name: str, known: frozenset[str] = KNOWN) -> str:
    """A known variable that a name is a slip of, "" if there is none."""
    if name in known or len(name) < SHORTEST:
        return ""
    if name.upper() in known - {"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"}:
        return name.upper()
    near = get_close_matches(name, known, n=1, cutoff=NEAR)
    plain = [re.sub(r"\d", "", text) for text in (name, *near)]
    return near[0] if near and plain[0] != plain[1] else ""


def is_read(subject: Subject, unit: LoadedUnit, name: str) -> bool:
    """Whether a command of a unit, or a program, library or script that it names, has the name."""
    word, root = name.encode(), subject.root
    for words in unit.lines:
        if any(name in each for each in words):
            return True
        files = [path for each in words[1:] if root.is_file(path := each.rpartition("=")[2])]
        program = find_program(root, words[0])
        texts = [*texts_of(subject, program), *(root.map(path) or b"" for path in files)]
        texts += [root.map(program) or b""] if program else []
        if any(text.find(word) >= 0 for text in texts):
            return True
    return False


def find_package(root: Root, unit: LoadedUnit, name: str) -> str:
    """The Python package that a variable is named after, in the environment of a unit's program."""
    package = name.partition("_")[0].lower()
    commands = unit.commands.get("ExecStart", ())
    return next(filter(None, (package_folder(root, words, package) for words in commands)), "")


def is_in_package(root: Root, package: str, name: str) -> bool:
    """Whether a file of a package has a variable's name, or makes names out of its beginning."""
    prefix = re.escape(name.partition("_")[0].encode())
    # Also as auto_envvar_prefix= of click and envvar_prefix= of dynaconf, without the underscore.
    made = rb"\b" + prefix + rb"_[\"'{%]|[\"']" + prefix + rb"[\"']"
    pattern = re.compile(re.escape(name.encode()) + rb"\b|" + made)
    for path in root.walk(package):
        if READABLE.fullmatch(path) and pattern.search(root.map(path) or b""):
            return True
    return False
