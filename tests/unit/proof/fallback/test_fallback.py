# SPDX-License-Identifier: Apache-2.0
"""Engines that use the device or refuse without it: and each way to compute on the processor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding
from imagebuilder.process import Completed
from imagebuilder.proof.fallback.prove import prove_fallback
from imagebuilder.proof.reading.report import MARK
from imagebuilder.recipe.expectations import Expectations, ExpectedEngine, PythonWorks
from tests.unit.proof.trees import Link, Program, Sandbox, facts, faults, make_tree, warnings
from tests.unit.proof.trees import subject as make_subject

UNIT = "/etc/systemd/system/llama-server.service"
PLUGINS = "/usr/lib/x86_64-linux-gnu/ggml/backends0"
GUARDED = """\
[Service]
Environment=KIND="Vulkan"
EnvironmentFile=/etc/default/llama-server
ExecCondition=/usr/bin/test -e ${MODEL}
ExecStartPre=/usr/libexec/find-gpus ROCm $KIND
ExecStart=/usr/bin/llama-server
"""
CARD = ("1002:7480", "Radeon RX 7600 XT", "gfx1102")
NO_DEVICES = Completed(0, "Available devices:\n  (none)\n", "")
REFUSED = Completed(1, "", "Available devices:\n  (none)\nno device of kind ROCm Vulkan")
LLAMA = ExpectedEngine("llama.cpp", ("hip", "vulkan"), unit="llama-server.service")
GUARD = "env KIND=Vulkan MODEL=/models/a b.gguf /usr/libexec/find-gpus ROCm Vulkan"
GOOD: dict[str, Completed | str] = {
    "ldd -r": "\tlibc.so.6 => /lib/libc.so.6\n",
    "/usr/bin/llama-server": NO_DEVICES,
}


def prove_llama(
    path: Path,
    engine: ExpectedEngine = LLAMA,
    *,
    unit: str = GUARDED,
    answers: Mapping[str, Completed | str] = {},
    files: Mapping[str, str | Link] = {},
    without: str = "",
) -> list[Finding]:
    """What is found of an image with llama.cpp for a Radeon."""
    there: dict[str, bytes | str | Link | Program] = {
        UNIT: unit,
        "/etc/default/llama-server": "# MODEL=/none\nMODEL='/models/a b.gguf'\n",
        "/usr/bin/llama-server": Program(),
        f"{PLUGINS}/libggml-hip.so": "",
        f"{PLUGINS}/libggml-vulkan.so": "",
        **files,
    }
    there.pop(without, None)
    subject = make_subject(
        make_tree(path, there),
        hardware=[CARD],
        expectations=Expectations(engines=(engine,)),
        run=Sandbox({**GOOD, GUARD: REFUSED, **answers}),
    )
    return list(prove_fallback(subject))


def test_a_profile_without_engines_is_not_asked(tmp_path: Path) -> None:
    assert list(prove_fallback(make_subject(make_tree(tmp_path, {}), hardware=[CARD]))) == []


def test_what_computes_with_and_without_the_device_is_told(tmp_path: Path) -> None:
    [fact] = prove_llama(tmp_path)
    assert facts([fact]) == [
        "llama.cpp: with the device hip, then vulkan; without it llama-server.service refuses to "
        "start"
    ]
    [evidence] = fact.evidence
    assert (evidence.path, evidence.symbol) == (UNIT, "ExecStartPre")
    assert evidence.said.endswith("exit status 1, no device of kind ROCm Vulkan")


def test_the_processor_may_be_what_is_wanted(tmp_path: Path) -> None:
    engine = ExpectedEngine("llama.cpp", unit="llama-server.service")
    subject = make_subject(
        make_tree(tmp_path, {"/usr/bin/llama-server": Program(), UNIT: "[Service]\n"}),
        expectations=Expectations(engines=(engine,)),
        run=Sandbox(GOOD),
    )
    assert facts(prove_fallback(subject)) == ["llama.cpp: meant to run on the processor"]


def test_a_card_that_no_engine_uses_is_found(tmp_path: Path) -> None:
    assert faults(prove_llama(tmp_path, ExpectedEngine("llama.cpp"))) == [
        "the profile is for gfx1102, but llama.cpp can only use the processor"
    ]


@pytest.mark.parametrize(
    ("unit", "what"),
    [
        ("[Service]\nExecStart=/usr/bin/llama-server\n", "does not check for the device"),
        (GUARDED.replace("ExecStartPre=", "ExecStartPre=-"), "does not check for the device"),
        (GUARDED + "ExecStartPre=\n", "does not check for the device"),
        (
            GUARDED.replace("/usr/libexec/find-gpus ROCm $KIND", "/usr/bin/true"),
            "does not check for the device",
        ),
        (GUARDED.replace("ROCm $KIND", "CPU"), "starts without the device"),
    ],
    ids=["no guard", "ignored", "taken back", "says yes to all", "looks for the processor"],
)
def test_a_service_that_starts_without_the_device_is_found(
    tmp_path: Path, unit: str, what: str
) -> None:
    passing = {"env KIND=Vulkan MODEL=/models/a b.gguf /usr/libexec/find-gpus CPU": "CPU0\n"}
    assert faults(prove_llama(tmp_path, unit=unit, answers=passing)) == [
        "llama.cpp would compute on the processor and nobody would notice: "
        f"llama-server.service {what}"
    ]


def test_a_drop_in_that_takes_the_guard_away_is_found(tmp_path: Path) -> None:
    files = {f"{UNIT}.d/mine.conf": "[Service]\nExecStartPre=\n"}
    [what] = faults(prove_llama(tmp_path, files=files))
    assert what.endswith(": llama-server.service does not check for the device")


def test_a_guard_that_does_not_run_is_found(tmp_path: Path) -> None:
    gone = {GUARD: Completed(127, "", "env: find-gpus: No such file or directory")}
    assert faults(prove_llama(tmp_path, answers=gone)) == [
        "llama-server.service never starts: the check for the device does not run"
    ]


def test_the_recipe_may_allow_the_processor(tmp_path: Path) -> None:
    engine = ExpectedEngine("llama.cpp", ("hip",), unit="llama-server.service", allow_cpu=True)
    assert facts(prove_llama(tmp_path, engine, unit="[Service]\n")) == [
        "llama.cpp: with the device hip; without it the processor, as the recipe allows"
    ]


def test_a_missing_backend_is_found(tmp_path: Path) -> None:
    found = prove_llama(tmp_path, without=f"{PLUGINS}/libggml-hip.so")
    assert faults(found) == ["llama.cpp has no backend hip, and would ignore that silently"]
    assert facts(found) == []


def test_a_backend_that_does_not_load_is_found(tmp_path: Path) -> None:
    lacks = f"ldd -r {PLUGINS}/libggml-hip.so"
    found = prove_llama(tmp_path, answers={lacks: "\tlibamdhip64.so.6 => not found\n"})
    assert faults(found) == ["the backend hip does not load, and llama.cpp would skip it silently"]
    assert found[0].evidence[0].said == "lacks libamdhip64.so.6"


def test_software_that_looks_like_a_card_is_found(tmp_path: Path) -> None:
    listed = "Available devices:\n  Vulkan0: llvmpipe (LLVM 19.1.7, 256 bits) (1 MiB, 1 MiB free)\n"
    assert faults(prove_llama(tmp_path, answers={"/usr/bin/llama-server": listed})) == [
        "llama.cpp lists the processor as a device although there is none"
    ]


def test_a_file_beside_the_backends_that_was_taken_away(tmp_path: Path) -> None:
    path, info = f"{PLUGINS}/libggml-cpu-haswell.so", "/var/lib/dpkg/info/libggml0"
    package = {
        f"{info}.md5sums": f"{'0' * 32}  {path[1:]}\n",
        f"{info}.list": f"/.\n{path}\n",
    }
    (what,) = warnings(prove_llama(tmp_path, files=package))
    assert f"lacks {path}, which the package" in what
    assert warnings(prove_llama(tmp_path, files={**package, path: ""})) == []


def test_a_missing_unit_is_found(tmp_path: Path) -> None:
    assert faults(prove_llama(tmp_path, without=UNIT)) == ["llama-server.service does not exist"]


def prove_vllm(path: Path, device: str, cuda: str, backends: tuple[str, ...]) -> list[Finding]:
    """What is found of an image with vLLM."""
    chosen = {"platform": "CpuPlatform" if device else "UnspecifiedPlatform", "device": device}
    torch = {"version": "2.10.0", "cuda": cuda, "hip": "", "xpu": "", "flags": []}
    said = {"python": "3.13.5", "modules": {}, "torch": torch, "platforms": {"vllm": chosen}}
    unit = "[Service]\nExecStartPre=/usr/libexec/vllm/find-device cuda\n"
    engine = ExpectedEngine("vllm", backends, "/opt/vllm", "vllm-node@.service")
    subject = make_subject(
        make_tree(path, {"/etc/systemd/system/vllm-node@.service": unit}),
        expectations=Expectations(
            engines=(engine,), python=(PythonWorks("/opt/vllm", ("torch", "vllm")),)
        ),
        run=Sandbox(
            {
                "/opt/vllm/bin/python -I -c": f"{MARK}{json.dumps(said)}\n",
                "env /usr/libexec/vllm/find-device cuda": Completed(1, "", "no device"),
            }
        ),
    )
    return list(prove_fallback(subject))


def test_vllm_for_a_card_refuses_without_it(tmp_path: Path) -> None:
    assert facts(prove_vllm(tmp_path, "", "12.8", ("cuda",))) == [
        "vllm: with the device cuda; without it vllm-node@.service refuses to start"
    ]


def test_vllm_for_the_processor_is_told(tmp_path: Path) -> None:
    assert facts(prove_vllm(tmp_path, "cpu", "", ())) == ["vllm: meant to run on the processor"]


@pytest.mark.parametrize(
    ("device", "cuda", "backends", "what"),
    [
        ("cpu", "", ("cuda",), "vLLM is built for the processor: it would compute there"),
        ("", "", ("cuda",), "vLLM cannot use cuda: its torch 2.10.0 is built for something else"),
        ("", "12.8", ("hip",), "vLLM cannot use hip: its torch 2.10.0 is built for something else"),
        ("", "12.8", (), "vLLM must compute on the processor, but is not built for it"),
    ],
)
def test_a_vllm_of_another_kind_is_found(
    tmp_path: Path, device: str, cuda: str, backends: tuple[str, ...], what: str
) -> None:
    [found] = faults(prove_vllm(tmp_path, device, cuda, backends))
    assert found.startswith(what)
