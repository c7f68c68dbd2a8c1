# SPDX-License-Identifier: Apache-2.0
"""Environments that import, for their accelerator, as they were locked; and those that do not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding
from imagebuilder.process import TIMED_OUT, Completed, Word, run
from imagebuilder.proof.python.prove import prove_python, runs_forward, runs_natively
from imagebuilder.proof.reading.provenance import Provenance, Trace, TraceKind
from imagebuilder.proof.reading.python import PROGRAM, EnginePlatform, read_environment
from imagebuilder.proof.reading.report import MARK
from imagebuilder.proof.subject import no_provenance
from imagebuilder.recipe.expectations import Expectations, PythonWorks
from tests.unit.proof.trees import Link, Program, Sandbox, facts, faults, make_tree, warnings
from tests.unit.proof.trees import subject as make_subject
from tests.workshop import SHIPPED_OVERLAYS

SITE = "/opt/vllm/lib/python3.13/site-packages"
CUDA = {"version": "2.10.0+cu128", "cuda": "12.8", "hip": "", "xpu": "", "flags": ["sm_90"]}
WHEELS = {"torch": "2.10.0", "vllm": "0.19.1"}


def said(
    torch: Mapping[str, object] | None = CUDA, *, vllm: Mapping[str, object] | None = None
) -> str:
    """What an environment answers, with everything well unless it is told otherwise."""
    modules = {"torch": {"version": "2.10.0+cu128"}, "vllm": vllm or {"version": "0.19.1"}}
    answer: dict[str, object] = {"python": "3.13.5", "modules": modules}
    if torch is not None:
        answer["torch"] = torch
    return f"a module prints this\n{MARK}{json.dumps(answer)}\n"


def prove(
    path: Path,
    *,
    answer: str | Completed = "",
    wheels: Mapping[str, str] = WHEELS,
    remove: str = "",
    python: str = "/usr/bin/python3.13",
    trace: Callable[[], Provenance | None] = no_provenance,
    **works: str,
) -> list[Finding]:
    """What is found of a root with an environment for CUDA 12.8."""
    files: dict[str, bytes | str | Link | Program] = {
        "/usr/bin/python3.13": Program(),
        "/usr/bin/python3.14": Program(),
        "/opt/vllm/bin/python": Link(python),
        "/opt/vllm/pyvenv.cfg": "home = /usr/bin\n",
    }
    for name, version in {"torch": "2.10.0", "vllm": "0.19.1"}.items():
        info = f"{SITE}/{name}-{version}.dist-info"
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        files[f"{info}/RECORD"] = ""
    files = {name: content for name, content in files.items() if remove not in name or not remove}
    wanted = {"platform": "cuda", "cuda": "12.8"} | works
    expected = PythonWorks("/opt/vllm", ("torch", "vllm"), **wanted)
    asked = Sandbox({"/opt/vllm/bin/python -I -c": answer or said()})
    return list(
        prove_python(
            make_subject(
                make_tree(path, files),
                expectations=Expectations(python=(expected,)),
                wheels={"/opt/vllm": wheels},
                run=asked,
                trace=trace,
            )
        )
    )


def test_nothing_is_asked_of_a_profile_without_python(tmp_path: Path) -> None:
    assert list(prove_python(make_subject(make_tree(tmp_path, {})))) == []


def test_a_good_environment_is_proved(tmp_path: Path) -> None:
    found = prove(tmp_path, target="sm_90")
    assert faults(found) == warnings(found) == []
    assert facts(found) == [
        "2 distributions as locked",
        "torch 2.10.0+cu128 imports with Python 3.13.5",
        "vllm 0.19.1 imports with Python 3.13.5",
        "torch 2.10.0+cu128 is built for CUDA 12.8",
        "torch has code for sm_90: sm_90",
    ]
    assert all(finding.evidence for finding in found)


def test_a_missing_environment_is_found(tmp_path: Path) -> None:
    assert faults(prove(tmp_path, remove="/lib/")) == [
        "the Python environment /opt/vllm does not exist"
    ]


@pytest.mark.parametrize(
    ("python", "what"),
    [
        ("/usr/bin/python3.12", "the interpreter of /opt/vllm is not in the image"),
        (
            "/usr/bin/python3.14",
            "/opt/vllm was created for python3.13, but its interpreter is python3.14",
        ),
    ],
)
def test_another_interpreter_is_found(tmp_path: Path, python: str, what: str) -> None:
    assert faults(prove(tmp_path, python=python)) == [what]


def test_what_is_not_as_locked_is_found(tmp_path: Path) -> None:
    found = prove(
        tmp_path, wheels={"torch": "2.9.1", "numpy": "2.2.6"}, remove="vllm-0.19.1.dist-info/RECORD"
    )
    assert faults(found) == [
        "torch is installed as 2.10.0, but locked as 2.9.1",
        "numpy 2.2.6 is locked, but is not installed in /opt/vllm",
    ]
    assert warnings(found) == ["/opt/vllm has distributions that no lock names: vllm"]


@pytest.mark.parametrize(
    ("kind", "is_told"),
    [
        (TraceKind.OVERLAY, False),
        (TraceKind.PACKAGE, False),
        (TraceKind.STEP, True),
        (TraceKind.CHANGED, True),
    ],
)
def test_who_brought_what_no_lock_names(kind: TraceKind, is_told: bool, tmp_path: Path) -> None:  # noqa: FBT001
    path = f"{SITE}/vllm-0.19.1.dist-info/METADATA"
    known = Provenance({path: Trace(path, kind, ("configure site",), overlay="site")})
    found = prove(tmp_path, wheels={"torch": "2.10.0"}, trace=lambda: known)
    assert faults(found) == []
    said = ["/opt/vllm has distributions that no lock names: vllm"]
    assert warnings(found) == (said if is_told else [])


def test_half_a_distribution_is_found(tmp_path: Path) -> None:
    assert faults(prove(tmp_path, remove="vllm-0.19.1.dist-info/RECORD")) == [
        "vllm 0.19.1 in /opt/vllm is incomplete"
    ]


def test_a_local_version_is_not_the_locked_one_without_it(tmp_path: Path) -> None:
    found = prove(tmp_path, wheels={"torch": "2.10.0+cpu", "vllm": "0.19.1"})
    assert faults(found) == ["torch is installed as 2.10.0, but locked as 2.10.0+cpu"]


def test_torch_for_the_processor_on_a_cuda_profile_is_found(tmp_path: Path) -> None:
    cpu = {"version": "2.10.0+cpu", "cuda": "", "hip": "", "xpu": "", "flags": []}
    found = prove(tmp_path, answer=said(cpu), target="sm_120")
    assert faults(found) == [
        "torch 2.10.0+cpu is built for the processor, but the profile is for CUDA 12.8"
    ]


def test_an_environment_without_torch_is_found(tmp_path: Path) -> None:
    found = prove(tmp_path, answer=said(None))
    assert faults(found) == ["/opt/vllm is for CUDA, but nothing in it imports torch"]


def test_another_cuda_is_found(tmp_path: Path) -> None:
    found = prove(tmp_path, answer=said({**CUDA, "cuda": "13.0"}))
    assert faults(found) == ["torch is built with CUDA 13.0, but the profile is for CUDA 12.8"]


def test_the_cuda_wheel_that_came_instead_of_rocm_is_found(tmp_path: Path) -> None:
    found = prove(tmp_path, platform="rocm", cuda="")
    assert faults(found) == [
        "torch 2.10.0+cu128 is built for CUDA 12.8, but the profile is for ROCm"
    ]


def test_a_torch_for_cuda_on_the_processor_is_only_large(tmp_path: Path) -> None:
    found = prove(tmp_path, platform="cpu", cuda="")
    what = "torch is built for CUDA 12.8, but the profile computes on the processor"
    assert warnings(found) == [what]
    assert faults(found) == []


def test_a_target_without_code_is_found(tmp_path: Path) -> None:
    found = prove(tmp_path, target="sm_120")
    assert faults(found) == ["torch has no code for sm_120; it has sm_90"]


def test_ptx_only_is_told(tmp_path: Path) -> None:
    flags = {**CUDA, "flags": ["sm_90", "compute_90"]}
    found = prove(tmp_path, answer=said(flags), target="sm_120")
    assert warnings(found) == ["torch has only PTX for sm_120: compute_90"]


def test_a_module_that_does_not_import_is_found(tmp_path: Path) -> None:
    error = "ImportError: libnuma.so.1: cannot open shared object file: No such file or directory"
    failing = {"error": error, "path": f"{SITE}/vllm/_ops.py", "line": 3}
    found = prove(tmp_path, answer=said(vllm=failing))
    assert faults(found) == [f"vllm does not import in /opt/vllm: {error}"]
    [evidence] = next(f for f in found if f.hint).evidence
    assert (evidence.path, evidence.section) == (f"{SITE}/vllm/_ops.py", "line 3")


@pytest.mark.parametrize(
    ("done", "why"),
    [
        (Completed(127, "", "env: python: not found"), "env: python: not found"),
        (Completed(139, "", ""), "it ended with status 139"),
        (Completed(TIMED_OUT, "", "", late=True), "it ran longer than 240 s"),
        (Completed(TIMED_OUT, "", ""), "it ended with status 124"),
    ],
)
def test_a_python_that_does_not_run_is_found(tmp_path: Path, done: Completed, why: str) -> None:
    assert faults(prove(tmp_path, answer=done)) == [f"the Python of /opt/vllm does not run: {why}"]


@pytest.mark.parametrize(
    ("flag", "target", "native", "forward"),
    [
        ("sm_120", "sm_120", True, False),
        ("sm_86", "sm_89", True, False),
        ("sm_90", "sm_89", False, False),
        ("sm_90a", "sm_90", False, False),
        ("sm_100", "sm_120", False, False),
        ("compute_80", "sm_120", False, True),
        ("compute_90a", "sm_120", False, False),
        ("compute_120", "sm_90", False, False),
        ("gfx1102", "gfx1102", True, False),
        ("gfx1100", "gfx1102", False, False),
    ],
)
def test_which_code_runs_where(flag: str, target: str, native: bool, forward: bool) -> None:  # noqa: FBT001 - a table
    assert runs_natively(flag, target) is native
    assert runs_forward(flag, target) is forward


def make_modules(path: Path) -> None:
    """A torch and a vllm that are small."""
    make_tree(
        path,
        {
            "/torch/__init__.py": (
                "from types import SimpleNamespace as S\n"
                "print('torch talks')\n"
                "__version__ = '2.10.0'\n"
                "version = S(cuda='12.8', hip=None)\n"
                "_C = S(_cuda_getArchFlags=lambda: 'sm_90 sm_120')\n"
            ),
            "/vllm/__init__.py": "import torch\n__version__ = '0.19.1'\n",
            "/vllm/platforms.py": (
                "class UnspecifiedPlatform:\n"
                "    device_type = ''\n"
                "current_platform = UnspecifiedPlatform()\n"
            ),
            "/ends/__init__.py": "raise SystemExit('no GPU')\n",
        },
    )


def test_the_program_says_what_an_environment_is(tmp_path: Path) -> None:
    make_modules(tmp_path)
    chosen = (SHIPPED_OVERLAYS["vllm"] / "probes/platform.py").read_text()
    engines = {
        "vllm": ("vllm", chosen), "silent": ("vllm", "import sys; sys.exit(3)"),
        "gone": ("nothing", chosen),
    }  # fmt: skip
    argv: list[Word] = [sys.executable, "-P", PROGRAM, json.dumps(engines)]
    argv += ["vllm", "ends", "nothing"]
    told = read_environment(run(argv, env={"PYTHONPATH": str(tmp_path)}))
    assert told.torch is not None
    assert (told.torch.cuda, told.torch.hip, told.torch.flags) == ("12.8", "", ("sm_90", "sm_120"))
    assert told.platforms == {
        "vllm": EnginePlatform("UnspecifiedPlatform", ""),
        "silent": EnginePlatform(error="SystemExit: 3"),
    }
    assert told.modules["vllm"].version == "0.19.1"
    assert told.modules["ends"].error == "SystemExit: no GPU"
    assert told.modules["ends"].path == str(tmp_path / "ends/__init__.py")
    assert told.modules["nothing"].error == "ModuleNotFoundError: No module named 'nothing'"
