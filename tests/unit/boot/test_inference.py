# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp says of itself is read as it was meant; the logs are real but for their cuts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from imagebuilder.boot.disk import make_models_disk
from imagebuilder.boot.inference import (
    InferenceError,
    conclude,
    infer,
    infer_over,
    read_answers,
    watch_load,
)
from imagebuilder.boot.llama import Said, Stack, read_said, read_stack, sections
from imagebuilder.boot.offload import read_offload
from imagebuilder.process import Completed, run

# llama.cpp 0.7.0 (11669) of Debian, our model, no accelerator and no backend but the processor's.
CPU_LOG = """\
0.00.042.688 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
0.00.043.310 I load_tensors:   CPU_Mapped model buffer size =     1.97 MiB
0.00.043.614 I llama_context:        CPU  output buffer size =     0.01 MiB
0.00.043.635 I llama_kv_cache:        CPU KV buffer size =     0.50 MiB
0.00.044.927 I sched_reserve:        CPU compute buffer size =     4.02 MiB
"""
# The same with libggml0-backend-rpc, and no node to ask: the second kind of line is not true.
CPU_LOG_WITH_RPC = """\
0.00.027.813 I load_tensors: offloading output layer to GPU
0.00.027.821 I load_tensors: offloading 1 repeating layers to GPU
0.00.027.826 I load_tensors: offloaded 3/3 layers to GPU
0.00.027.832 I load_tensors:   CPU_Mapped model buffer size =     1.97 MiB
"""
RPC_LOG = """\
0.00.036.351 I llama_prepare_model_devices: using device RPC0 (10.77.0.12:50052) (unknown id) - \
24105 MiB free
0.00.037.759 I load_tensors: offloading output layer to GPU
0.00.037.770 I load_tensors: offloading 1 repeating layers to GPU
0.00.037.770 I load_tensors: offloaded 3/3 layers to GPU
0.00.037.773 I load_tensors:   CPU_Mapped model buffer size =     0.17 MiB
0.00.037.773 I load_tensors: RPC0[10.77.0.12:50052] model buffer size =     1.80 MiB
0.00.041.263 I llama_kv_cache: RPC0[10.77.0.12:50052] KV buffer size =     0.50 MiB
"""
# The device is there and gets nothing (-ngl 0).
RPC_LOG_UNUSED = """\
0.00.041.594 I llama_prepare_model_devices: using device RPC0 (10.77.0.12:50052) (unknown id) - \
24105 MiB free
0.00.043.158 I load_tensors: offloading 0 repeating layers to GPU
0.00.043.168 I load_tensors: offloaded 0/3 layers to GPU
0.00.043.175 I load_tensors:   CPU_Mapped model buffer size =     1.97 MiB
"""
# gpustack/gpustack#1547
ROCM_LOG = """\
load_tensors: loading model tensors, this can take a while... (mmap = false)
load_tensors: offloading 24 repeating layers to GPU
load_tensors: offloading output layer to GPU
load_tensors: offloaded 25/25 layers to GPU
load_tensors:        ROCm0 model buffer size =   579.23 MiB
load_tensors:    ROCm_Host model buffer size =   520.30 MiB
"""
# iacopPBK/llama.cpp-gfx906#17
ROCM_LOG_OF_TWO = """\
load_tensors: offloaded 63/63 layers to GPU
load_tensors:          CPU model buffer size =   251.85 MiB
load_tensors:        ROCm0 model buffer size = 27022.95 MiB
load_tensors:        ROCm1 model buffer size = 26590.20 MiB
"""
# ggml-org/llama.cpp#16095
VULKAN_LOG = """\
load_tensors: offloading 48 repeating layers to GPU
load_tensors: offloading output layer to GPU
load_tensors: offloaded 49/49 layers to GPU
load_tensors:   CPU_Mapped model buffer size = 25265.84 MiB
load_tensors:      Vulkan0 model buffer size = 27246.99 MiB
"""
# ggml-org/llama.cpp#11367 says 0/36 with a device that it uses; the buffer is as without it.
VULKAN_LOG_UNUSED = """\
llama_model_load_from_file_impl: using device Vulkan0 (NVIDIA GeForce RTX 2060) - 5955 MiB free
load_tensors: offloading 0 repeating layers to GPU
load_tensors: offloaded 0/36 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  3891.24 MiB
"""
# The form of ggml-org/llama.cpp's src/llama-model.cpp, some of the layers on the card.
CUDA_LOG = """\
llama_prepare_model_devices: using device CUDA0 (NVIDIA GeForce RTX 3060) - 11929 MiB free
load_tensors: offloading output layer to GPU
load_tensors: offloading 3 repeating layers to GPU
load_tensors: offloaded 4/41 layers to GPU
load_tensors: CPU_Mapped model buffer size = 12398.48 MiB
load_tensors: CUDA0 model buffer size = 1101.95 MiB
"""
LLVMPIPE_LOG = (
    f"llama_prepare_model_devices: using device Vulkan0 (llvmpipe (LLVM 21))\n{VULKAN_LOG}"
)


@pytest.mark.parametrize(
    ("log", "backend"),
    [
        (CPU_LOG, "cpu"),
        (CPU_LOG_WITH_RPC, "cpu"),
        (RPC_LOG, "cpu"),
        (RPC_LOG_UNUSED, "cpu"),
        (ROCM_LOG, "rocm"),
        (ROCM_LOG_OF_TWO, "rocm"),
        (VULKAN_LOG, "vulkan"),
        (VULKAN_LOG_UNUSED, "cpu"),
        (CUDA_LOG, "cuda"),
        (LLVMPIPE_LOG, "cpu"),
        (VULKAN_LOG.replace("27246.99", "0.00"), "cpu"),
        (ROCM_LOG.replace("ROCm0 model", "ROCm0_Split model"), "rocm"),
        (ROCM_LOG_OF_TWO.replace("ROCm1", "Vulkan1"), "rocm"),
    ],
)
def test_the_weights_tell_the_backend(log: str, backend: str) -> None:
    found = read_offload(log)
    assert found
    assert found.backend == backend


@pytest.mark.parametrize(
    ("log", "lenders"),
    [
        (CPU_LOG_WITH_RPC, ()),
        (RPC_LOG_UNUSED, ()),
        (RPC_LOG, ("10.77.0.12:50052",)),
        (RPC_LOG.replace("RPC0[", "RPC["), ("10.77.0.12:50052",)),
        (RPC_LOG.replace("1.80 MiB", "0.00 MiB"), ()),
    ],
)
def test_a_node_lends_only_if_it_holds_weights(log: str, lenders: tuple[str, ...]) -> None:
    found = read_offload(log)
    assert found
    assert found.lenders == lenders


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (CPU_LOG, "all layers on the processor (CPU_Mapped 1.97 MiB)"),
        (CPU_LOG_WITH_RPC, "all layers on the processor (CPU_Mapped 1.97 MiB)"),
        (ROCM_LOG, "25 of 25 layers offloaded (ROCm0 579.23 MiB, ROCm_Host 520.3 MiB)"),
        (CUDA_LOG, "4 of 41 layers offloaded (CPU_Mapped 12398.5 MiB, CUDA0 1101.95 MiB)"),
        (RPC_LOG.replace("3/3", "2/3"),
         "2 of 3 layers offloaded (CPU_Mapped 0.17 MiB, RPC0[10.77.0.12:50052] 1.8 MiB)"),
    ],
)  # fmt: skip
def test_some_layers_are_not_all(log: str, text: str) -> None:
    assert str(read_offload(log)) == text


def test_the_last_load_counts() -> None:
    again = ROCM_LOG + CPU_LOG
    found = read_offload(again)
    assert found
    assert found.backend == "cpu"


def test_a_log_without_the_lines_tells_nothing() -> None:
    quiet = (
        "I srv  llama_server: model loaded\nI srv  llama_server: listening on http://[::1]:8080\n"
    )
    assert read_offload(quiet) is None


# --- what the image declares

SETTINGS = """\
# SPDX-License-Identifier: Apache-2.0
LLAMA_ARG_MODEL=/models/default.gguf
LLAMA_ARG_HOST=0.0.0.0
LLAMA_ARG_PORT=8080
#LLAMA_ARG_RPC=node1:50052
"""
UNIT = """\
[Service]
EnvironmentFile=/etc/default/llama-server
ExecStartPre=/usr/libexec/llama-cpp/find-gpus ROCm Vulkan
User=compute
"""
LOOKED = {
    "node": "gate-1\n",
    "unit": UNIT,
    "settings": SETTINGS,
    "rpc settings": "LLAMA_RPC_PORT=50052\n\n#LLAMA_RPC_HOST=192.168.1.11\n",
    "backends": "libggml-cpu-zen4.so\nlibggml-hip.so\nlibggml-rpc.so\nlibggml-vulkan.so\n",
}
GPUS = Stack(
    node="gate-1", user="compute", model="/models/default.gguf", address="127.0.0.1", port=8080,
    kinds=("ROCm", "Vulkan"), expected="rocm", rpc_port=50052,
)  # fmt: skip


def test_units_and_settings_declare_the_stack() -> None:
    assert read_stack(LOOKED) == GPUS


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        (LOOKED["backends"], "rocm"),
        ("libggml-vulkan.so\n", "vulkan"),
        ("libggml-cuda.so\nlibggml-vulkan.so\n", "cuda"),
        ("libggml-cpu-zen4.so\nlibggml-rpc.so\n", "cpu"),
    ],
)
def test_without_a_guard_the_backends_tell_what_is_expected(backends: str, expected: str) -> None:
    unit = "\n".join(line for line in UNIT.splitlines() if "find-gpus" not in line)
    stack = read_stack({**LOOKED, "unit": unit, "backends": backends, "rpc settings": ""})
    assert stack
    assert (stack.kinds, stack.expected, stack.rpc_port) == ((), expected, 0)


@pytest.mark.parametrize(("kinds", "expected"), [("Vulkan", "vulkan"), ("CUDA", "cuda")])
def test_the_first_kind_is_expected(kinds: str, expected: str) -> None:
    stack = read_stack({**LOOKED, "unit": UNIT.replace("ROCm Vulkan", kinds)})
    assert stack
    assert stack.expected == expected


@pytest.mark.parametrize("missing", ["unit", "settings"])
def test_an_image_without_llama_declares_nothing(missing: str) -> None:
    assert read_stack({**LOOKED, missing: ""}) is None


def test_an_address_of_its_own_is_asked_there() -> None:
    settings = SETTINGS.replace("0.0.0.0", "10.77.0.11")
    stack = read_stack({**LOOKED, "settings": settings})
    assert stack
    assert stack.address == "10.77.0.11"


# --- what was answered

# As llama-server answers, but for what nobody reads.
ANSWERS = {
    "completion": {"content": "vDCSjumr", "tokens_predicted": 8, "stop_type": "limit"},
    "chat": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "SLxLxLxL"}}],
        "usage": {"completion_tokens": 8, "prompt_tokens": 25, "total_tokens": 33},
    },
    "seconds": 0.61,
}
RUNNING = {"ActiveState": "active", "SubState": "running", "Result": "success"}


def said(
    log: str, answers: dict[str, object] | None = None, state: dict[str, str] | None = None
) -> Said:
    """A server that runs and has logged."""
    return Said(answers or ANSWERS, state or RUNNING, log, read_offload(log))


def test_both_answers_make_an_inference() -> None:
    stack = replace(GPUS, kinds=(), expected="cpu")
    found = conclude(stack, said(CPU_LOG), over=("gate-1",))
    assert (found.expected, found.used, found.degraded, found.refused) == (
        "cpu",
        "cpu",
        False,
        False,
    )
    assert (found.completion, found.chat, found.tokens) == ("vDCSjumr", "SLxLxLxL", 16)
    assert (found.over, found.seconds) == (("gate-1",), 0.61)


@pytest.mark.parametrize(
    ("log", "used", "degraded"),
    [(CPU_LOG, "cpu", True), (ROCM_LOG, "rocm", False), (VULKAN_LOG, "vulkan", True)],
)
def test_less_than_the_profile_is_for_is_degraded(
    log: str,
    used: str,
    degraded: bool,  # noqa: FBT001 - a case
) -> None:
    found = conclude(GPUS, said(log), over=("gate-1",))
    assert (found.used, found.degraded) == (used, degraded)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            {"error": "ValueError: /completion was answered with 500: oops"},
            "answered with 500: oops",
        ),
        ({**ANSWERS, "completion": {"content": "", "tokens_predicted": 0}}, "said nothing"),
        ({**ANSWERS, "chat": {"choices": []}}, "lacks"),
        ({"completion": {}, "seconds": 1.0}, "lacks 'content'"),
    ],
)
def test_a_bad_answer_is_told(answers: dict[str, object], message: str) -> None:
    read = read_answers(answers)
    assert isinstance(read, str)
    assert message in read
    with pytest.raises(InferenceError, match=r"CPU_Mapped model buffer size"):
        conclude(GPUS, said(CPU_LOG, answers), over=("gate-1",))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"ActiveState": "active", "SubState": "running"}, "runs, but was not ready in time"),
        ({"ActiveState": "inactive", "SubState": "dead"},
         "was not started: it is inactive (dead); is /models/default.gguf there?"),
        ({"ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code"},
         "ended before it was ready: it is activating (auto-restart), exit-code"),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "signal"},
         "failed (failed), signal"),
    ],
)  # fmt: skip
def test_silence_is_told_with_the_last_lines(state: dict[str, str], message: str) -> None:
    journal = "".join(f"line {number}\n" for number in range(100))
    silent = Said(None, state, journal, None)
    with pytest.raises(InferenceError) as caught:
        conclude(GPUS, silent, over=("gate-1",))
    assert message in str(caught.value)
    assert caught.value.evidence == tuple(f"line {number}" for number in range(80, 100))
    assert "line 99" in str(caught.value)
    assert "line 79" not in str(caught.value)


def test_an_answer_from_who_knows_where_is_none() -> None:
    with pytest.raises(InferenceError, match="does not log where it has put the model"):
        conclude(GPUS, said("I srv  llama_server: model loaded\n"), over=("gate-1",))


@pytest.mark.parametrize("log", [CPU_LOG_WITH_RPC, RPC_LOG_UNUSED, CPU_LOG])
def test_two_nodes_are_two_only_if_the_second_holds_weights(log: str) -> None:
    both = ("gate-1", "gate-2")
    found = conclude(GPUS, said(RPC_LOG), over=both, lender="10.77.0.12", refused=True)
    assert (found.over, found.used, found.degraded) == (both, "cpu", True)
    with pytest.raises(
        InferenceError, match=r"10\.77\.0\.12 holds nothing of the model: all layers"
    ):
        conclude(GPUS, said(log), over=both, lender="10.77.0.12")
    with pytest.raises(InferenceError, match=r"10\.77\.0\.13 holds nothing"):
        conclude(GPUS, said(RPC_LOG), over=both, lender="10.77.0.13")


# --- scripts and their output

FIND_GPUS = "no device of kind ROCm Vulkan; llama.cpp would run on the processor"
REFUSING = f"""\
== answers

== state
ActiveState=activating
SubState=auto-restart
Result=exit-code
== journal
Available devices:
{FIND_GPUS}
llama-server.service: Control process exited, code=exited, status=1/FAILURE
== end
"""
LOOK_OUTPUT = "".join(f"== {name}\n{text}" for name, text in LOOKED.items()) + "== end\n"


def answering(log: str) -> str:
    """What a script prints that followed a server which answers."""
    state = "".join(f"{name}={value}\n" for name, value in RUNNING.items())
    return f"== answers\n{json.dumps(ANSWERS)}\n\n== state\n{state}== journal\n{log}== end\n"


def test_output_of_a_script_is_read_in_parts() -> None:
    assert sections("noise\n== a\n1\n2\n== b\n== c\n3\n") == {"a": "1\n2", "b": "", "c": "3"}
    found = read_said(sections(answering(CPU_LOG)))
    assert (found.answers, found.state, found.refused) == (ANSWERS, RUNNING, False)
    assert found.offload == read_offload(CPU_LOG)
    assert read_said(sections(REFUSING)).refused
    assert not read_said(sections(REFUSING.replace("activating", "inactive"))).refused, "long ago"
    assert read_said({}).answers is None


@dataclass
class Node:
    """A node that answers each script with the next text, and remembers the scripts."""

    outputs: list[str]
    error: str = ""
    scripts: list[str] = field(default_factory=list)

    def __call__(self, script: str, *, stdin: bytes = b"", check: bool = True) -> Completed:
        asks = script.endswith(("\nfollow\n", "\nfollow\nstop\n"))
        assert asks == stdin.startswith(b"# SPDX"), "the program that asks comes along"
        assert not (asks and check), "what it printed counts, not its exit status"
        self.scripts.append(script)
        return Completed(0, self.outputs.pop(0) if self.outputs else "", self.error)


def test_a_service_that_refuses_the_processor_is_replaced_by_hand() -> None:
    node = Node([LOOK_OUTPUT, REFUSING, "", answering(CPU_LOG)])
    found = infer(node, node="gate-1", timeout=60)
    assert (found.refused, found.used, found.expected, found.degraded) == (
        True,
        "cpu",
        "rocm",
        True,
    )
    _, _, stopping, by_hand = node.scripts
    assert stopping.endswith("stop\n")
    for word in ("LLAMA_ARG_DEVICE=none", "LLAMA_ARG_N_GPU_LAYERS=0", "--uid=compute"):
        assert word in by_hand
    assert by_hand.endswith("follow\nstop\n")


def test_a_service_that_falls_back_by_itself_did_not_refuse() -> None:
    node = Node([LOOK_OUTPUT, answering(CPU_LOG)])
    found = infer(node, node="gate-1", timeout=60)
    assert (found.refused, found.used, found.degraded) == (False, "cpu", True)


def test_a_node_that_is_lost_is_told() -> None:
    node = Node([LOOK_OUTPUT, "== answers\n"], "client_loop: send disconnect: Broken pipe")
    with pytest.raises(InferenceError, match=r"gate-1: the node was lost(.|\n)*Broken pipe"):
        infer(node, node="gate-1", timeout=60)


def test_an_image_without_llama_is_told() -> None:
    with pytest.raises(InferenceError, match=r"gate-1: there is no llama-server\.service"):
        infer(Node(["== unit\n== settings\n== end\n"]), node="gate-1", timeout=60)


def test_an_image_without_rpc_is_told_what_to_add() -> None:
    without = LOOK_OUTPUT.replace("LLAMA_RPC_PORT=50052", "")
    with pytest.raises(InferenceError, match="put rpc into llama_backends"):
        infer_over(Node([without]), Node([without]), "10.77.0.12", timeout=60)


def test_a_lender_that_does_not_listen_is_told() -> None:
    second = Node(
        [LOOK_OUTPUT, "== was\n== state\nActiveState=failed\n== journal\nno CPU\n== end\n"]
    )
    with pytest.raises(InferenceError, match=r"does not open its port 50052\n    no CPU"):
        infer_over(Node([LOOK_OUTPUT]), second, "10.77.0.12", timeout=60)


@pytest.mark.parametrize("was", ["active", "inactive"])
def test_what_was_lent_is_taken_back(was: str) -> None:
    plain = LOOK_OUTPUT.replace("ExecStartPre=", "#").replace("libggml-hip.so\n", "")
    plain = plain.replace("libggml-vulkan.so\n", "")
    second = Node([plain.replace("gate-1", "gate-2"), f"== was\n{was}\n== ready\n== end\n"])
    found = infer_over(Node([plain, answering(RPC_LOG)]), second, "10.77.0.12", timeout=60)
    assert (found.over, found.degraded) == (("gate-1", "gate-2"), False)
    *_, last = second.scripts
    assert last.endswith("systemctl daemon-reload\n")
    assert ("\nstop\n" in last) == (was == "inactive")


def test_a_gpu_image_lends_its_processor_by_hand() -> None:
    second = Node([LOOK_OUTPUT.replace("gate-1", "gate-2"), "== ready\n== end\n"])
    found = infer_over(Node([LOOK_OUTPUT, answering(RPC_LOG)]), second, "10.77.0.12", timeout=60)
    assert (found.refused, found.expected, found.used) == (True, "rocm", "cpu")
    assert "systemd-run" in second.scripts[1]
    assert second.scripts[1].rstrip().endswith("/usr/libexec/llama-cpp/rpc-server\nawait_port")


def test_the_scripts_are_sound() -> None:
    node, second = Node([LOOK_OUTPUT, REFUSING, "", answering(CPU_LOG)]), Node([LOOK_OUTPUT])
    infer(node, node="gate-1", timeout=60)
    watch_load(node)
    with pytest.raises(InferenceError):
        infer_over(Node([LOOK_OUTPUT]), second, "10.77.0.12", timeout=60)
    plain = LOOK_OUTPUT.replace("ExecStartPre=", "#")
    lender = Node([plain, "== ready\n== end\n"])
    with pytest.raises(InferenceError):
        infer_over(Node([plain]), lender, "10.77.0.12", timeout=60)
    for script in (*node.scripts, *second.scripts, *lender.scripts):
        # Functions that a script does not use, and variables that it is given.
        words = ["shellcheck", "--shell=dash", "--exclude=SC2329,SC2317,SC2034,SC2154", "-"]
        run(words, stdin=script.encode())


# --- the disk


def test_the_disk_has_the_model_for_everybody(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    model.write_bytes(b"GGUF" * 1000)
    model.chmod(0o600)
    disk, twin = tmp_path / "models.img", tmp_path / "twin.img"
    for path in (disk, twin):
        make_models_disk(path, model, label="weights", name="llm/default.gguf")
        time.sleep(1.1)  # times in the file system are whole seconds
    assert disk.read_bytes() == twin.read_bytes()
    assert disk.stat().st_blocks * 512 < disk.stat().st_size, "it is sparse"
    listed = run(["debugfs", "-R", "ls -l /llm", disk]).stdout
    line = next(line for line in listed.splitlines() if "default.gguf" in line)
    assert line.split()[1] == "100644"
    top = run(["debugfs", "-R", "stat /", disk]).stdout
    assert "Mode:  0755" in top
    out = tmp_path / "out"
    run(["debugfs", "-R", f"dump /llm/default.gguf {out}", disk])
    assert out.read_bytes() == model.read_bytes()
    run(["e2fsck", "-fn", disk])
    assert run(["e2label", disk]).stdout.strip() == "weights"
