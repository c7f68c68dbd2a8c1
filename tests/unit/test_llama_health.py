# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's health checks: where the model is, and which results are wrong."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.unit.llama_logs import CPU_LOG, PLACED, QUIET_LOG, ROCM_LOG
from tests.unit.test_health_probes import LLAMA, STATUS, FakeNode

pytestmark = pytest.mark.slow

PID, INVOCATION = "4711", "0c1f6a3e5f9e4d3c8b675a2f7d1c9e10"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class LlamaNode(FakeNode):
    """A node whose llama-server has this process."""

    def journal(self, text: str) -> None:
        """What the server has logged since it was started."""
        self.write("log", text)
        own = f"case \"$*\" in *' _SYSTEMD_INVOCATION_ID={INVOCATION}') cat {self.root}/log ;; esac"
        self.program("journalctl", own)

    def serve(self, size: int, *settings: str, name: str = "m.gguf") -> None:
        """The settings of the server, and a model of so many bytes."""
        lines = (f"LLAMA_ARG_MODEL=/models/{name}", *settings)
        self.write("etc/default/llama-server", "\n".join(lines) + "\n")
        if size:
            self.write(f"models/{name}", "")
            os.truncate(self.root / "models" / name, size)

    def describe(self, *descriptors: str) -> None:
        """The server's fdinfo of these descriptors."""
        for number, text in enumerate(descriptors):
            self.write(f"proc/{PID}/fdinfo/{number}", text)

    def smi(self, *lines: str) -> None:
        """Processes that NVIDIA's driver knows."""
        self.program("nvidia-smi", "\n".join(f"echo '{line}'" for line in lines) or "exit 9")

    def judge(self, *words: str) -> tuple[str, str]:
        """Verdict and words."""
        program = LLAMA / "libexec/llama-cpp/health"
        done = self.run(sys.executable, "-I", program, *words)
        assert not done.stderr
        return STATUS[done.returncode], done.stdout.strip()

    def model(self) -> tuple[str, str]:
        return self.judge("model", "llama-server.service", "/etc/default/llama-server")


@pytest.fixture
def node(tmp_path: Path) -> LlamaNode:
    made = LlamaNode(tmp_path)
    made.program("systemctl", f"printf 'MainPID={PID}\\nInvocationID={INVOCATION}\\n'")
    made.journal(QUIET_LOG)
    made.smi()
    made.serve(5 * GIB)
    made.describe("pos:\t0\nflags:\t02\n")
    return made


# --- where the model is


@pytest.mark.parametrize(("log", "backend", "lenders"), PLACED)
def test_the_check_and_the_boot_test_read_a_log_alike(
    node: LlamaNode, log: str, backend: str, lenders: tuple[str, ...]
) -> None:
    node.journal(log)
    verdict, words = node.model()
    assert verdict == ("degraded" if backend == "cpu" and not lenders else "ok")
    assert "MiB" in words


FORGED = "load_tensors: ROCm0 model buffer size = 579.23 MiB"


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        (f"{CPU_LOG}{QUIET_LOG}prompt: x\n{FORGED}\n", "degraded"),
        (f"{ROCM_LOG}{QUIET_LOG}prompt: x\n{CPU_LOG}", "ok"),
        (f"{CPU_LOG}request: GET /{FORGED} 503\n", "degraded"),
        (f"{ROCM_LOG}request: GET /load_tensors: loading model tensors 503\n", "ok"),
        (f"request: GET /a: using device ROCm0 (llvmpipe 503\n{ROCM_LOG}", "ok"),
    ],
)
def test_whoever_sends_requests_does_not_say_where_the_model_is(
    node: LlamaNode, log: str, verdict: str
) -> None:
    node.journal(log)
    assert node.model()[0] == verdict


def test_what_an_earlier_start_logged_says_nothing(node: LlamaNode) -> None:
    node.journal(ROCM_LOG)
    node.program("systemctl", f"printf 'MainPID={PID}\\nInvocationID=another\\n'")
    assert node.model()[0] == "degraded"


@pytest.mark.parametrize("pid", ["0", PID])
def test_a_server_that_shall_use_the_processor_is_not_judged(node: LlamaNode, pid: str) -> None:
    node.program("systemctl", f"printf 'MainPID={pid}\\n'")
    if pid == PID:
        node.serve(5 * GIB, 'LLAMA_ARG_N_GPU_LAYERS="0"')
    assert node.model() == ("ok", "")


def fdinfo(client: int, *sizes: str, pdev: str = "0000:03:00.0") -> str:
    """A descriptor of a DRM device, as Linux describes it."""
    lines = [f"drm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t{pdev}", *sizes]
    return "pos:\t0\nflags:\t02100002\n" + "\n".join(lines) + "\n"


VRAM = f"drm-total-vram:\t{5 * GIB // KIB} KiB"
HALF = f"drm-total-vram:\t{GIB // 2 // KIB} KiB"


@pytest.mark.parametrize(
    ("descriptors", "mebibytes"),
    [
        ([fdinfo(1, VRAM)], 5120),
        ([fdinfo(1, VRAM), fdinfo(1, VRAM)], 5120),
        ([fdinfo(1, VRAM, f"drm-memory-vram:\t{5 * GIB // KIB} KiB")], 5120),
        ([fdinfo(1, f"drm-total-vram:\t{5 * GIB}")], 5120),
        ([fdinfo(1, "drm-total-vram:\t5120 MiB")], 5120),
        ([fdinfo(1, HALF), fdinfo(2, HALF)], 1024),
        ([fdinfo(1, HALF), fdinfo(1, HALF, pdev="0000:04:00.0")], 1024),
        ([fdinfo(1, HALF, f"drm-total-gtt:\t{GIB // KIB} KiB")], 1536),
        ([fdinfo(1, "drm-total-local0:\t5120 MiB", "drm-total-system0:\t1 MiB")], 5121),
        ([fdinfo(1, f"drm-total-vram0:\t{5 * GIB // KIB} KiB")], 5120),
    ],
)  # fmt: skip
def test_memory_of_the_card_is_counted_once(
    node: LlamaNode, descriptors: list[str], mebibytes: int
) -> None:
    node.describe(*descriptors)
    assert node.model() == ("ok", f"llama-server has {mebibytes} MiB of the GPU's memory")


@pytest.mark.parametrize(
    "descriptors",
    [
        [fdinfo(1, "drm-total-vram:\t2097152")],  # bytes
        [fdinfo(1, HALF), fdinfo(1, HALF)],  # one client
        [fdinfo(1, f"drm-memory-vram:\t{GIB // 2}", HALF)],  # one region
        [fdinfo(1, "drm-total-cpu:\t5242880 KiB", "drm-shared-vram:\t5242880 KiB")],
        ["pos:\t0\ndrm-total-vram:\t5242880 KiB\n"],
    ],
)
def test_what_is_not_the_models_memory_does_not_count(
    node: LlamaNode, descriptors: list[str]
) -> None:
    node.describe(*descriptors)
    assert node.model()[0] == "degraded"


def test_memory_that_two_drivers_count_is_not_added(node: LlamaNode) -> None:
    node.describe(fdinfo(1, "drm-total-vram:\t600 MiB"))
    node.write(f"sys/class/kfd/kfd/proc/{PID}/vram_41245", f"{500 * MIB}\n")
    assert node.model() == (
        "degraded",
        "llama-server has 600 MiB of the GPU's memory, less than its model needs: the processor "
        "computes",
    )
    node.write(f"sys/class/kfd/kfd/proc/{PID}/vram_41246", f"{600 * MIB}\n")
    assert node.model() == ("ok", "llama-server has 1100 MiB of the GPU's memory")


# On an H200 with llama.cpp: 2232 MiB with a model of 1.5 GiB on the card, 780 MiB if it keeps all
# layers from the card, 518 MiB for a process that only opens it.
@pytest.mark.parametrize(
    ("lines", "size", "verdict"),
    [
        ([f"{PID}, 2232"], 3 * GIB // 2, "ok"),
        (["12, 2232", f"{PID}, 780"], 3 * GIB // 2, "degraded"),
        ([f"{PID}, 518"], 3 * GIB // 2, "degraded"),
        (["12, 2232"], 3 * GIB // 2, "degraded"),
        ([], 3 * GIB // 2, "degraded"),
        ([f"{PID}, 700", f"{PID}, 700"], 3 * GIB // 2, "ok"),
        ([f"{PID}, 780"], 600 * MIB, "ok"),
        ([f"{PID}, 1100"], 80 * GIB, "ok"),
        ([f"{PID}, [N/A]"], 3 * GIB // 2, "unknown"),
        ([f"{PID}, 780"], 0, "unknown"),
        ([f"{PID}, 1100"], 0, "ok"),
    ],
)
def test_a_process_that_only_opens_an_nvidia_card_has_no_model_there(
    node: LlamaNode, tmp_path: Path, lines: list[str], size: int, verdict: str
) -> None:
    (tmp_path / "models/m.gguf").unlink()
    node.serve(size)
    node.smi(*lines)
    assert node.model()[0] == verdict


def test_all_parts_of_a_model_are_its_size(node: LlamaNode) -> None:
    for number, size in ((3, GIB), (2, GIB), (1, MIB)):
        node.serve(size, name=f"m[1]-{number:05}-of-00003.gguf")
    node.smi(f"{PID}, 518")
    assert node.model()[0] == "degraded"


def test_with_a_number_of_layers_a_part_of_the_model_is_not_known(node: LlamaNode) -> None:
    node.serve(5 * GIB, "LLAMA_ARG_N_GPU_LAYERS=4")
    node.smi(f"{PID}, 518")
    assert node.model()[0] == "unknown"
    node.smi()
    assert node.model()[0] == "degraded"


def test_a_process_that_may_not_be_read_is_not_known(node: LlamaNode, tmp_path: Path) -> None:
    for file in (tmp_path / f"proc/{PID}/fdinfo").iterdir():
        file.unlink()
    (tmp_path / f"proc/{PID}/fdinfo").rmdir()
    verdict, words = node.model()
    assert verdict == "unknown"
    assert words.endswith("set LLAMA_ARG_LOG_VERBOSITY=4 to have llama-server log it")


# --- which results are wrong

CASE = "MUL_MAT(type_a=q4_0,type_b=f32,m=16,n=1,k=256,bs=[1,1],nr=[1,1],per=[0,1,2,3],v=0,o=1)"
OTHER = CASE.replace("q4_0", "q8_0")
RED, GREEN = "\x1b[1;31mFAIL\x1b[0m", "\x1b[1;32mOK\x1b[0m"
FINE = f"  {CASE.replace('q4_0', 'f32')}: {GREEN}"


def failed(said: str, case: str = CASE) -> str:
    """A line of a case that failed, with what it said in the middle."""
    return f"  {case}: {said} {RED}"


def near(times: float, case: str = CASE) -> str:
    return failed(f"[MUL_MAT] ERR = {times * 0.0005:.9f} > 0.000500000", case)


def compare(node: LlamaNode, *runs: str) -> tuple[str, str]:
    """What is said of a device whose runs print this; a run with FAIL in it fails."""
    for number, text in enumerate(runs):
        node.write(f"runs/{number}", f"{FINE}\n{FINE.replace('m=16', 'm=1')}\n{text}\n")
    node.program(
        "test-backend-ops",
        f"cd {node.root}/runs\n[ \"$*\" = 'test -b CUDA0 -o MUL_MAT' ] || exit 99\n"
        "set -- *; cat $1; echo loaded >&2; ! grep -q FAIL $1 || s=1; rm $1; exit ${s:-0}",
    )
    return node.judge("results", str(node.root / "bin/test-backend-ops"), "CUDA0")


def test_a_run_that_passes_is_enough(node: LlamaNode) -> None:
    passed = f"  {CASE}: {GREEN}\n  3/3 tests passed\n  Backend CUDA0: {GREEN}"
    assert compare(node, passed) == ("ok", "CUDA0: 3 cases of MUL_MAT as on the processor")


@pytest.mark.parametrize(
    "said",
    [
        "",
        f"Testing 1 devices\n\nBackend 1/1: CPU\n  Skipping\n1/1 backends passed\n{GREEN}",
        f"  {CASE}: not supported [CUDA0] \n  0/0 tests passed\n  Backend CUDA0: {GREEN}",
    ],
)
def test_a_run_that_compares_nothing_has_no_result(node: LlamaNode, said: str) -> None:
    node.write("said", f"{said}\n")
    node.program("test-backend-ops", f"cat {node.root}/said")
    verdict, words = node.judge("results", str(node.root / "bin/test-backend-ops"), "CUDA0")
    assert verdict == "unknown"
    assert words.endswith("CUDA0: test-backend-ops has no result")


@pytest.mark.parametrize(
    "said",
    [
        "[MUL_MAT] NaN at index 3 (CUDA0=nan CPU=1.000000)",
        "[MUL_MAT] inf mismatch: CUDA0=inf CPU=1.000000",
        "[MUL_MAT] inf sign mismatch: CUDA0=-inf CPU=inf",
        "sentinel mismatch: sent_1",
        "[MUL_MAT] ERR = 0.900000000 > 0.000500000",
        "[MUL_MAT] ERR = 0.005050000 > 0.000500000",
        "[MUL_MAT] ERR = inf > 0.000500000",
        "[MUL_MAT] ERR = nan > 0.000500000",
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_what_no_rounding_explains_is_wrong_at_once(
    node: LlamaNode,
    said: str,
    before: bool,  # noqa: FBT001
) -> None:
    line = f"{said}   {CASE}: {RED}" if before else failed(said)
    verdict, words = compare(node, f"{near(1.1, OTHER)}\n{line}")
    assert verdict == "wrong results"
    assert CASE in words
    assert not list((node.root / "runs").iterdir()), "there is no second run"


@pytest.mark.parametrize(
    ("second", "verdict", "words"),
    [
        (f"  {CASE}: {GREEN}", "ok", "CUDA0: 3 cases of MUL_MAT as on the processor; beyond the "
                                     f"tolerance in one run: {CASE}: 1.4 times the tolerance"),
        (near(1.2, OTHER), "ok", f", {OTHER}: 1.2 times the tolerance"),
        (near(1.1), "wrong results", f"in two runs: {CASE}: 1.1 times the tolerance"),
        (near(1.1, OTHER) + "\n" + near(3), "wrong results", f"{CASE}: 3 times"),
        (near(11, OTHER), "wrong results", f"{OTHER}: 11 times the tolerance"),
        (failed("failed to allocate tensors [CUDA0]"), "unknown", "has no result"),
    ],
)  # fmt: skip
def test_a_little_is_wrong_if_it_comes_again(
    node: LlamaNode, second: str, verdict: str, words: str
) -> None:
    found = compare(node, near(1.4), second)
    assert found[0] == verdict
    assert words in found[1]


@pytest.mark.parametrize(
    "said",
    [
        failed("failed to allocate tensors [CUDA0]"),
        near(1.4, OTHER) + "\n" + failed("failed to allocate tensors [CUDA0]"),
        "CUDA error: out of memory\nFAIL",
        "  some other FAIL",
    ],
)
def test_no_result_is_not_a_wrong_one(node: LlamaNode, said: str) -> None:
    verdict, words = compare(node, said)
    assert verdict == "unknown"
    assert words.endswith("CUDA0: test-backend-ops has no result")


def test_each_device_is_compared(node: LlamaNode) -> None:
    tool = str(node.root / "bin/test-backend-ops")
    found = f"echo '{FINE}'; [ $3 = CUDA0 ] || {{ echo '{near(20)}'; exit 1; }}"
    node.program("test-backend-ops", found)
    assert node.judge("results", tool, "CUDA0")[0] == "ok"
    verdict, words = node.judge("results", tool, "CUDA0", "CUDA1")
    assert (verdict, words.split()[0]) == ("wrong results", "CUDA1")


def test_a_check_that_fails_itself_says_nothing_of_the_device(node: LlamaNode) -> None:
    verdict, words = node.judge("results", "/nonexistent/test-backend-ops", "CUDA0")
    assert verdict == "unknown"
    assert words.startswith("FileNotFoundError: ")
