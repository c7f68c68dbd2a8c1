# SPDX-License-Identifier: Apache-2.0
"""The tiny model in the image's own llama.cpp, with the program that a node is tested with.

A sandbox has no systemd: small programs of that name start and follow what the program asks for.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.process import Completed, run
from imagebuilder.sandbox.sandbox import Bind, Sandbox
from tests.unit.probes import load_program
from tests.workshop import SHIPPED_OVERLAYS, Workshop

pytestmark = pytest.mark.root

SHARE = Path("/run/imagebuilder/share")
PROBES = SHIPPED_OVERLAYS["llama-cpp"] / "probes"
THERE = Path("/run/imagebuilder/probes")
BOOT = load_program(PROBES / "boot.py")
FailedError, Said, Stack = BOOT.FailedError, BOOT.Said, BOOT.Stack
SERVER = Path("/usr/bin/llama-server")
TIMEOUT = 60
SYSTEMD_RUN = """\
#!/bin/sh
set -eu
for word; do
    shift
    case $word in
    --unit=*) unit=${word#*=} ;;
    --setenv=*) export "${word#*=}" ;;
    --*) ;;
    *) set -- "$@" "$word" ;;
    esac
done
"$@" > "/tmp/$unit.log" 2>&1 < /dev/null &
echo "$!" > "/tmp/$unit.pid"
"""
SYSTEMCTL = """\
#!/bin/sh
set -eu
verb=$1
for unit; do :; done
pid=$(cat "/tmp/$unit.pid" 2> /dev/null || echo 0)
state=failed
if [ -e "/proc/$pid/exe" ]; then state=active; fi
case $verb/$unit in
cat/*) cat "/etc/systemd/system/$unit" ;;
stop/*) [ "$pid" = 0 ] || kill "$pid" ;;
show/*) printf '%s\\n' "ActiveState=$state" "SubState=$state" "Result=exit-code" "MainPID=$pid" ;;
esac
"""
JOURNALCTL = """\
#!/bin/sh
set -eu
for unit; do :; done
cat "/tmp/$unit.log"
"""
# A node that computes on another one; both are this sandbox.
OVER = f"""\
cd {SHARE}
export LLAMA_RPC_PORT=50052 LLAMA_RPC_HOST=127.0.0.1 LLAMA_CACHE=/tmp LLAMA_ARG_LOG_VERBOSITY=4
/usr/libexec/llama-cpp/rpc-server > /dev/null 2>&1 &
until ss -Hltn 'sport = :50052' | grep -q .; do sleep 0.1; done
export LLAMA_ARG_MODEL={SHARE}/tiny.gguf LLAMA_ARG_HOST=127.0.0.1 LLAMA_ARG_PORT=8080
export LLAMA_ARG_N_GPU_LAYERS="$1" ${{2:+"LLAMA_ARG_RPC=$2"}}
llama-server > log 2>&1 &
python3 -c "$(cat)" "$!"
cat log
"""
# What Python does in the image, with the modules of the program.
BEGIN = f"""\
import dataclasses, json, pathlib, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, {str(THERE)!r})
import boot, server
"""
LOOK = f"{BEGIN}print(json.dumps(dataclasses.asdict(boot.find_stack())))"
ASK = f"""\
{BEGIN}
stack = boot.Stack("compute", sys.argv[1], "127.0.0.1", 8080)
settings = {{"LLAMA_ARG_DEVICE": "none", "LLAMA_ARG_N_GPU_LAYERS": "0"}}
print(json.dumps(dataclasses.asdict(boot.ask_by_hand(stack, settings, float(sys.argv[2])))))
"""
CONVERSE = f"""\
{BEGIN}
process, end = pathlib.Path("/proc", sys.argv[1]), time.monotonic() + {TIMEOUT}
print(json.dumps(server.converse(("127.0.0.1", 8080), process, end)))
"""


@dataclass(frozen=True)
class Node:
    """The image in a sandbox, each script in a fresh one; `share` is a folder that both see."""

    work: Path
    share: Path
    binds: tuple[Bind, ...] = ()

    def python(self, program: str, *words: str) -> dict[str, Any]:
        """What a Python program in the image prints."""
        lines = f'ip link set lo up\nPATH={SHARE}/bin:$PATH\nexec python3 -c "$@"'
        said = self.run(["sh", "-c", lines, "sh", program, *words]).stdout
        value: dict[str, Any] = json.loads(said)
        return value

    def run(self, argv: list[str], *, stdin: bytes = b"", check: bool = True) -> Completed:
        binds = (Bind(self.share, SHARE, writable=True), Bind(PROBES, THERE), *self.binds)
        return run(
            argv,
            sandbox=Sandbox(self.work, ("root",), "changes", 1, binds),
            stdin=stdin,
            check=check,
        )


@pytest.fixture(scope="module")
def image(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of `generic`."""
    folder = tmp_path_factory.mktemp("image") / "generic"
    workshop("export", "generic", os.fspath(folder))
    return folder


@pytest.fixture
def node(image: Path, tmp_path: Path) -> Node:
    """A node of that image, with the model."""
    share, work = tmp_path / "share", tmp_path / "work"
    (share / "bin").mkdir(parents=True)
    work.mkdir()
    (work / "root").symlink_to((image / "root").resolve())
    run([sys.executable, "-I", PROBES / "model.py", share / "tiny.gguf"])
    fakes = (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL))
    for name, text in fakes:
        (share / "bin" / name).write_text(text)
        (share / "bin" / name).chmod(0o755)
    return Node(work, share)


def ask_for(node: Node, model: str, timeout: float = TIMEOUT) -> Mapping[str, Any]:
    """What a server by hand amounts to, with that file as its model."""
    stack = Stack("compute", f"{SHARE}/{model}", "127.0.0.1", 8080)
    found: Mapping[str, Any] = BOOT.conclude(
        stack, Said(**node.python(ASK, stack.model, str(timeout)))
    )
    return found


def test_the_image_declares_its_stack(node: Node) -> None:
    found = Stack(**node.python(LOOK))
    assert dataclasses.replace(found, kinds=()) == Stack(
        "compute", "/models/default.gguf", "127.0.0.1", 8080, expected="cpu", rpc_port=50052
    )


def test_the_model_loads_and_answers(node: Node) -> None:
    found = ask_for(node, "tiny.gguf")
    assert (found["used"], found["expected"], found["tokens"]) == ("cpu", "cpu", 16)
    assert found["completion"].isascii()
    assert found["completion"].isalpha()
    assert len(found["completion"]) == len(found["chat"]) == 8
    assert 0 <= found["seconds"] < TIMEOUT  # rounded: a tiny model may take none
    again = ask_for(node, "tiny.gguf")
    assert (again["completion"], again["chat"]) == (found["completion"], found["chat"])


def test_a_truncated_model_is_told_in_the_servers_own_words(node: Node) -> None:
    whole = (node.share / "tiny.gguf").read_bytes()
    (node.share / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FailedError, match="ended before it was ready") as caught:
        ask_for(node, "cut.gguf")
    assert any("model is corrupted or incomplete" in line for line in caught.value.evidence)


def test_a_server_that_never_gets_ready_is_not_waited_for_longer(
    node: Node, tmp_path: Path
) -> None:
    stuck = tmp_path / "stuck"
    stuck.write_text("#!/bin/sh\necho 'loading for ever'\nexec sleep 600\n")
    stuck.chmod(0o755)
    waiting = Node(node.work, node.share, (Bind(stuck, SERVER),))
    with pytest.raises(FailedError, match="runs, but was not ready in time") as caught:
        ask_for(waiting, "tiny.gguf", 3)
    assert caught.value.evidence == ("loading for ever",)


def over(node: Node, layers: str, lender: str) -> Any:  # noqa: ANN401 - of the program
    """What a server says that may compute on `lender`."""
    words = ["sh", "-c", f"ip link set lo up\n{OVER}", "sh", layers, lender]
    answers, _, log = node.run(words, stdin=CONVERSE.encode()).stdout.partition("\n")
    return Said(json.loads(answers), {"ActiveState": "active"}, log)


def conclude(said: Any) -> Mapping[str, Any]:  # noqa: ANN401 - of the program
    """What it amounts to, where 127.0.0.1 lends."""
    stack = Stack("compute", f"{SHARE}/tiny.gguf", "127.0.0.1", 8080)
    found: Mapping[str, Any] = BOOT.conclude(stack, said, lender="127.0.0.1")
    return found


def test_layers_lie_on_the_node_that_lends(node: Node) -> None:
    found = conclude(over(node, "all", "127.0.0.1:50052"))
    assert (found["used"], found["tokens"]) == ("cpu", 16)
    assert found["placed"].startswith("3 of 3 layers offloaded")


@pytest.mark.parametrize(("layers", "lender"), [("0", "127.0.0.1:50052"), ("all", "")])
def test_a_lender_that_got_nothing_is_told(node: Node, layers: str, lender: str) -> None:
    said = over(node, layers, lender)
    with pytest.raises(FailedError, match=r"127\.0\.0\.1 holds nothing of the model: all"):
        conclude(said)


def test_with_the_rpc_backend_the_count_of_layers_is_not_true(node: Node) -> None:
    """Why the buffers decide; when this fails, llama.cpp has corrected what it says."""
    said = over(node, "all", "")
    assert "offloaded 3/3 layers to GPU" in said.journal
    offload = load_program(PROBES / "offload.py").read_offload(said.journal)
    assert (offload.backend, offload.lenders) == ("cpu", ())
