# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's own program on a node."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.process import Word, run
from tests.unit.llama_logs import (
    CPU_LOG,
    CPU_LOG_WITH_RPC,
    CUDA_LOG,
    PLACED,
    QUIET_LOG,
    ROCM_LOG,
    RPC_LOG,
    RPC_LOG_UNUSED,
    VULKAN_LOG,
)
from tests.unit.probes import load_program, server
from tests.workshop import SHIPPED_OVERLAYS

PROBES = SHIPPED_OVERLAYS["llama-cpp"] / "probes"
BOOT = load_program(PROBES / "boot.py")
read_offload = load_program(PROBES / "offload.py").read_offload
FailedError, Said, Stack = BOOT.FailedError, BOOT.Said, BOOT.Stack


@pytest.mark.parametrize(("log", "backend", "lenders"), PLACED)
def test_the_weights_tell_what_computes(log: str, backend: str, lenders: tuple[str, ...]) -> None:
    found = read_offload(log)
    assert found
    assert (found.backend, found.lenders) == (backend, lenders)


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


def test_a_log_without_the_lines_tells_nothing() -> None:
    assert read_offload(QUIET_LOG) is None


# --- what the image declares

SETTINGS = """\
# SPDX-License-Identifier: Apache-2.0
LLAMA_ARG_MODEL=/models/default.gguf
LLAMA_ARG_HOST=0.0.0.0
LLAMA_ARG_PORT=8080
#LLAMA_ARG_RPC=node1:50052
"""
RPC_SETTINGS = "LLAMA_RPC_PORT=50052\n\n#LLAMA_RPC_HOST=192.168.1.11\n"
UNIT = """\
[Service]
EnvironmentFile=/etc/default/llama-server
ExecStartPre=/usr/libexec/llama-cpp/find-gpus ROCm Vulkan
User=compute
"""
PLAIN_UNIT = "\n".join(line for line in UNIT.splitlines() if "find-gpus" not in line)
PLUGINS = ["libggml-cpu-zen4.so", "libggml-hip.so", "libggml-rpc.so", "libggml-vulkan.so"]
GPUS = Stack(
    user="compute", model="/models/default.gguf", address="127.0.0.1", port=8080,
    kinds=("ROCm", "Vulkan"), expected="rocm", rpc_port=50052,
)  # fmt: skip


def test_units_and_settings_declare_the_stack() -> None:
    assert BOOT.read_stack(UNIT, SETTINGS, RPC_SETTINGS, PLUGINS) == GPUS


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        (PLUGINS, "rocm"),
        (["libggml-vulkan.so"], "vulkan"),
        (["libggml-cuda.so", "libggml-vulkan.so"], "cuda"),
        (["libggml-cpu-zen4.so", "libggml-rpc.so"], "cpu"),
    ],
)
def test_without_a_guard_the_backends_tell_what_is_expected(
    plugins: list[str], expected: str
) -> None:
    stack = BOOT.read_stack(PLAIN_UNIT, SETTINGS, "", plugins)
    assert (stack.kinds, stack.expected, stack.rpc_port) == ((), expected, 0)


@pytest.mark.parametrize(("kinds", "expected"), [("Vulkan", "vulkan"), ("CUDA", "cuda")])
def test_the_first_kind_is_expected(kinds: str, expected: str) -> None:
    stack = BOOT.read_stack(UNIT.replace("ROCm Vulkan", kinds), SETTINGS, RPC_SETTINGS, PLUGINS)
    assert stack.expected == expected


@pytest.mark.parametrize(("unit", "settings"), [("", SETTINGS), (UNIT, "")])
def test_an_image_without_llama_declares_nothing(unit: str, settings: str) -> None:
    assert BOOT.read_stack(unit, settings, RPC_SETTINGS, PLUGINS) is None


def test_an_address_of_its_own_is_asked_there() -> None:
    settings = SETTINGS.replace("0.0.0.0", "10.77.0.11")
    assert BOOT.read_stack(UNIT, settings, "", PLUGINS).address == "10.77.0.11"


# --- what was answered

# As llama-server answers, but for what nobody reads.
COMPLETION: dict[str, object] = {
    "content": "vDCSjumr", "tokens_predicted": 8, "stop_type": "limit"
}  # fmt: skip
CHAT: dict[str, object] = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "SLxLxLxL"}}],
    "usage": {"completion_tokens": 8, "prompt_tokens": 25, "total_tokens": 33},
}
ANSWERS: dict[str, object] = {"completion": COMPLETION, "chat": CHAT, "seconds": 0.61}
RUNNING = {"ActiveState": "active", "SubState": "running", "Result": "success"}


def said(log: str, answers: Mapping[str, object] = ANSWERS) -> Any:  # noqa: ANN401 - of the program
    """A server that runs and has logged."""
    return Said(answers, RUNNING, log)


def test_both_answers_make_an_inference() -> None:
    found = BOOT.conclude(replace(GPUS, kinds=(), expected="cpu"), said(CPU_LOG))
    assert found == {
        "expected": "cpu", "used": "cpu", "refused": False, "completion": "vDCSjumr",
        "chat": "SLxLxLxL", "tokens": 16, "seconds": 0.61,
        "placed": "all layers on the processor (CPU_Mapped 1.97 MiB)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("log", "used"), [(CPU_LOG, "cpu"), (ROCM_LOG, "rocm"), (VULKAN_LOG, "vulkan")]
)
def test_what_computed_is_told_beside_what_was_expected(log: str, used: str) -> None:
    found = BOOT.conclude(GPUS, said(log))
    assert (found["expected"], found["used"]) == ("rocm", used)


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
    with pytest.raises(FailedError, match=message) as caught:
        BOOT.conclude(GPUS, said(CPU_LOG, answers))
    assert any("CPU_Mapped model buffer size" in line for line in caught.value.evidence)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"ActiveState": "active", "SubState": "running"}, "runs, but was not ready in time"),
        ({"ActiveState": "inactive", "SubState": "dead"},
         r"was not started: it is inactive \(dead\); is /models/default.gguf there\?"),
        ({"ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code"},
         r"ended before it was ready: it is activating \(auto-restart\), exit-code"),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "signal"},
         r"failed \(failed\), signal"),
    ],
)  # fmt: skip
def test_silence_is_told_with_the_last_lines(state: dict[str, str], message: str) -> None:
    journal = "".join(f"line {number}\n" for number in range(100))
    with pytest.raises(FailedError, match=message) as caught:
        BOOT.conclude(GPUS, Said(None, state, journal))
    assert caught.value.evidence == tuple(f"line {number}" for number in range(80, 100))


def test_an_answer_from_who_knows_where_is_none() -> None:
    with pytest.raises(FailedError, match="does not log where it has put the model"):
        BOOT.conclude(GPUS, said(QUIET_LOG))


@pytest.mark.parametrize("log", [CPU_LOG_WITH_RPC, RPC_LOG_UNUSED, CPU_LOG])
def test_two_nodes_are_two_only_if_the_second_holds_weights(log: str) -> None:
    found = BOOT.conclude(GPUS, said(RPC_LOG), lender="10.77.0.12", refused=True)
    assert (found["used"], found["refused"]) == ("cpu", True)
    with pytest.raises(FailedError, match=r"10\.77\.0\.12 holds nothing of the model: all layers"):
        BOOT.conclude(GPUS, said(log), lender="10.77.0.12")
    with pytest.raises(FailedError, match=r"10\.77\.0\.13 holds nothing"):
        BOOT.conclude(GPUS, said(RPC_LOG), lender="10.77.0.13")


# --- on a node

REFUSING = """\
Available devices:
no device of kind ROCm Vulkan; llama.cpp would run on the processor
llama-server.service: Control process exited, code=exited, status=1/FAILURE
"""
SERVICE, RPC = "llama-server.service", "llama-rpc-server.service"
# A unit is a file with its text; beside it are its state, its journal and whether it is active.
SYSTEMCTL = """\
#!/bin/sh
set -eu
echo "systemctl $*" >> log
for unit; do :; done
case $1 in
cat | is-active) cat "$unit.$1" 2> /dev/null || true ;;
show) cat "$unit.show" ;;
show-environment) cat environment ;;
set-environment) echo "$2" >> environment ;;
esac
"""
SYSTEMD_RUN = """\
#!/bin/sh
set -eu
echo "systemd-run $*" >> log
for word; do
    case $word in
    --unit=*) for file in show journal; do cp "by-hand.$file" "${word#*=}.$file"; done ;;
    esac
done
"""
JOURNALCTL = """\
#!/bin/sh
for unit; do :; done
cat "$unit.journal"
"""
SS = "#!/bin/sh\ncat listening\n"
IP = "#!/bin/sh\necho '10.77.0.0/24 dev eth0 proto kernel scope link src 10.77.0.12'\n"
# The program with another folder for drop-ins than the host's own, and a port that is free.
LAUNCH = """\
import sys, pathlib
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop(1))
import boot
boot.PORT_BY_HAND = int(sys.argv.pop(1))
boot.DROP_INS = pathlib.Path("drop-ins")
boot.DROP_IN = boot.DROP_INS / "test.conf"
sys.exit(boot.main())
"""


@dataclass(frozen=True)
class FakeNode:
    """A folder with small programs instead of systemd's, and a server that answers."""

    work: Path
    port: int

    def put(self, **files: str) -> None:
        """Files of the node; `__` in a name is a dot, `_` a hyphen."""
        for name, text in files.items():
            (self.work / name.replace("__", ".").replace("_", "-")).write_text(text)

    def __call__(self, *words: str) -> dict[str, Any]:
        """What the program prints."""
        env = {"PATH": f"{self.work}/bin:{os.environ['PATH']}"}
        argv: list[Word] = [sys.executable, "-c", LAUNCH, PROBES, str(self.port), *words]
        done = run(argv, env=env, cwd=self.work, check=False)
        told: dict[str, Any] = json.loads(done.stdout)
        assert done.status == ("error" in told)
        return told

    @property
    def log(self) -> str:
        """The commands that were run."""
        return (self.work / "log").read_text()


@contextmanager
def node(work: Path, unit: str = UNIT) -> Iterator[FakeNode]:
    """A node of an image with that unit, whose service runs."""
    (work / "bin").mkdir()
    programs = {"systemctl": SYSTEMCTL, "systemd-run": SYSTEMD_RUN, "journalctl": JOURNALCTL,
                "ss": SS, "ip": IP}  # fmt: skip
    for name, text in programs.items():
        (work / "bin" / name).write_text(text)
        (work / "bin" / name).chmod(0o755)
    state = "".join(f"{name}={value}\n" for name, value in RUNNING.items())
    state += f"MainPID={os.getpid()}\n"
    given = {"/health": {}, "/completion": COMPLETION, "/v1/chat/completions": CHAT}
    with server(given) as port:
        made = FakeNode(work, port)
        settings = work / "llama-server"
        settings.write_text(SETTINGS.replace("0.0.0.0", "127.0.0.1").replace("8080", str(port)))
        (work / "rpc").write_text(RPC_SETTINGS)
        made.put(
            llama_server__service__cat=unit.replace("/etc/default/llama-server", str(settings)),
            llama_server__service__show=state,
            llama_server__service__journal=CPU_LOG,
            llama_rpc_server__service__cat=f"[Service]\nEnvironmentFile={work}/rpc\n",
            llama_rpc_server__service__show=state,
            llama_rpc_server__service__journal="no CPU\n",
            by_hand__show=state,
            by_hand__journal=CPU_LOG,
            environment="LLAMA_ARG_LOG_VERBOSITY=4\n",
            listening="LISTEN 0 1 0.0.0.0:50052\n",
            log="",
        )
        yield made


def test_the_service_answers(tmp_path: Path) -> None:
    with node(tmp_path, PLAIN_UNIT) as asked:
        found = asked("ask", "60")
        assert (found["completion"], found["chat"], found["tokens"]) == ("vDCSjumr", "SLxLxLxL", 16)
        assert (found["expected"], found["used"], found["refused"]) == ("cpu", "cpu", False)
        assert "restart" not in asked.log
        assert "systemd-run" not in asked.log


def test_a_service_that_does_not_log_its_load_is_started_again(tmp_path: Path) -> None:
    with node(tmp_path, PLAIN_UNIT) as asked:
        asked.put(environment="LANG=C\n")
        asked("ask", "60")
        assert f"systemctl try-restart {SERVICE}" in asked.log
        asked.put(environment="LANG=C\n", log="")
        asked("prepare")
        asked("ask", "60")
        assert "restart" not in asked.log


def test_a_service_that_refuses_the_processor_is_replaced_by_hand(tmp_path: Path) -> None:
    with node(tmp_path) as asked:
        asked.put(
            llama_server__service__show="ActiveState=activating\nSubState=auto-restart\n",
            llama_server__service__journal=REFUSING,
        )
        found = asked("ask", "60")
        assert (found["refused"], found["used"], found["expected"]) == (True, "cpu", "rocm")
        stopped, started = asked.log.index(f"stop {SERVICE}"), asked.log.index("systemd-run")
        assert stopped < started < asked.log.index(f"stop {BOOT.BY_HAND}")
        for word in ("LLAMA_ARG_DEVICE=none", "LLAMA_ARG_N_GPU_LAYERS=0", "--uid=compute"):
            assert word in asked.log


def test_a_service_that_falls_back_by_itself_did_not_refuse(tmp_path: Path) -> None:
    with node(tmp_path) as asked:
        found = asked("ask", "60")
        assert (found["refused"], found["used"], found["expected"]) == (False, "cpu", "rocm")


def test_a_service_that_failed_long_ago_did_not_refuse(tmp_path: Path) -> None:
    with node(tmp_path) as asked:
        asked.put(
            llama_server__service__show="ActiveState=inactive\nSubState=dead\n",
            llama_server__service__journal=REFUSING,
        )
        assert "was not started: it is inactive (dead)" in asked("ask", "1")["error"]


def test_a_server_that_answers_badly_is_told(tmp_path: Path) -> None:
    with node(tmp_path, PLAIN_UNIT) as asked, server({"/health": {}}) as other:
        settings = tmp_path / "llama-server"
        settings.write_text(settings.read_text().replace(str(asked.port), str(other)))
        told = asked("ask", "60")
        assert "/completion was answered with 404" in told["error"]
        assert told["hint"].startswith("journalctl --unit llama-server")


def test_an_image_without_llama_is_told(tmp_path: Path) -> None:
    with node(tmp_path, "") as asked:
        assert asked("ask", "60")["error"].startswith("there is no llama-server.service")


def test_an_image_without_rpc_is_told_what_to_add(tmp_path: Path) -> None:
    with node(tmp_path) as asked:
        (tmp_path / "rpc").unlink()
        assert "put rpc into llama_backends" in asked("lend", "60")["hint"]


def test_a_lender_that_does_not_listen_is_told(tmp_path: Path) -> None:
    with node(tmp_path, PLAIN_UNIT) as asked:
        asked.put(listening="", llama_rpc_server__service__show="ActiveState=failed\n")
        told = asked("lend", "60")
        assert "does not open its port 50052" in told["error"]
        assert told["evidence"] == ["no CPU"]


@pytest.mark.parametrize("was", ["active", "inactive"])
def test_what_was_lent_is_taken_back(tmp_path: Path, was: str) -> None:
    with node(tmp_path, PLAIN_UNIT) as asked:
        asked.put(llama_rpc_server__service__is_active=f"{was}\n")
        lent = asked("lend", "60")
        drop_in = tmp_path / "drop-ins/test.conf"
        assert drop_in.read_text() == "[Service]\nIPAddressAllow=10.77.0.0/24\n"
        asked.put(log="")
        asked("take-back", json.dumps(lent))
        assert not drop_in.parent.exists()
        assert (f"stop {RPC}" in asked.log) == (was == "inactive")
        assert asked.log.endswith("systemctl daemon-reload\n")


def test_a_gpu_image_lends_and_borrows_by_hand(tmp_path: Path) -> None:
    with node(tmp_path) as asked:
        lent = asked("lend", "60")
        assert "/usr/libexec/llama-cpp/rpc-server" in asked.log
        asked.put(by_hand__journal=RPC_LOG, log="")
        found = asked("ask", "60", "10.77.0.12", json.dumps(lent))
        assert (found["refused"], found["expected"], found["used"]) == (True, "rocm", "cpu")
        assert "LLAMA_ARG_RPC=10.77.0.12:50052" in asked.log
        asked("take-back", json.dumps(lent))
        assert f"stop {BOOT.RPC_BY_HAND}" in asked.log
        assert not (tmp_path / "drop-ins").exists()
