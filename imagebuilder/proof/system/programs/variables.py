# SPDX-License-Identifier: Apache-2.0
"""Variables that a site sets and nobody reads: nearly the name of one that a runtime reads, or gone
from the package whose name they begin with.

Programs pass over what they do not know, so such a variable has no effect and says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import Variable, environment_of
from imagebuilder.proof.reading.python import package_folder
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.services.devices import session_environment
from imagebuilder.proof.services.selectors import EMULATIONS, HINDRANCES, SELECTORS, SHARED
from imagebuilder.proof.services.settings import words_of
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.programs.options import texts_of
from imagebuilder.recipe.engines import find_engine
from imagebuilder.root import Root

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


def prove_variables(subject: Subject) -> Iterator[Finding]:
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
            yield SAY.warning(f"{what}which programs read", variable.evidence(name), hint=HINT)


def find_engine_words(subject: Subject) -> Iterator[tuple[str, tuple[str, frozenset[str]]]]:
    """The units of engines: what the names of an engine's variables begin with, and the known names
    with those.
    """
    for engine in subject.expectations.engines:
        words = find_engine(subject.engines, engine.engine).model.words
        if words and words.prefix:
            texts = map(str.upper, words_of(subject.root, words.variables))
            names = {text for text in texts if text.startswith(words.prefix)}
            yield engine.unit, (words.prefix, KNOWN | names)


def prove_variable(
    subject: Subject, unit: LoadedUnit, name: str, variable: Variable, known: frozenset[str]
) -> Iterator[Finding]:
    if re.fullmatch(INVALID.get(name, "(?!)"), variable.value):
        what = f"{unit.name} has {name}={variable.value}, which its runtime refuses"
        hint = "see the documentation of that variable for the form of its value"
        yield SAY.warning(what, variable.evidence(name), hint=hint)
        return
    near, package = nearest(name, known), find_package(subject.root, unit, name)
    if not (near or package) or is_read(subject, unit, name):
        return
    if package and not is_in_package(subject.root, package, name):
        what = f"{unit.name} sets {name}, which {package} does not contain: it has no effect"
        hint = "remove it, or look up what replaced it"
        yield SAY.warning(what, variable.evidence(name), Evidence(package), hint=hint)
    elif near and not package:
        what = f"{unit.name} sets {name}, which its program does not contain: it is nearly {near}"
        yield SAY.warning(what, variable.evidence(name), hint=HINT)


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
