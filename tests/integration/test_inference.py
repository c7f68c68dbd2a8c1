# SPDX-License-Identifier: Apache-2.0
"""The tiny model in the image's own llama.cpp, with the scripts that a node is tested with.

A sandbox has no systemd: small programs of that name start and follow what the scripts ask for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.boot.inference import ASK, InferenceError, ask, conclude, look
from imagebuilder.boot.llama import Said, Stack, by_hand_script, read_said, sections
from imagebuilder.boot.model import make_model
from imagebuilder.process import Completed, run
from imagebuilder.sandbox import Bind, Sandbox
from tests.workshop import Workshop

pytestmark = pytest.mark.root

SHARE = Path("/run/imagebuilder/share")
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
case $verb/${3-} in
cat/*) cat "/etc/systemd/system/$unit" ;;
stop/*) [ "$pid" = 0 ] || kill "$pid" ;;
show/ActiveState | show/SubState) echo "$state" ;;
show/MainPID) echo "$pid" ;;
show/*) printf '%s\\n' "ActiveState=$state" "SubState=$state" "Result=exit-code" ;;
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
echo '== answers'
python3 -c "$(cat)" 127.0.0.1 8080 "$!" {TIMEOUT}
echo '== journal'
cat log
"""


@dataclass(frozen=True)
class Node:
    """The image in a sandbox, each script in a fresh one; `share` is a folder that both see."""

    work: Path
    share: Path
    binds: tuple[Bind, ...] = ()

    def __call__(self, script: str, *, stdin: bytes = b"", check: bool = True) -> Completed:
        lines = f"ip link set lo up\nPATH={SHARE}/bin:$PATH\n{script}"
        return self.run(["sh", "-c", lines], stdin=stdin, check=check)

    def run(self, argv: list[str], *, stdin: bytes = b"", check: bool = True) -> Completed:
        binds = (Bind(self.share, SHARE, writable=True), *self.binds)
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
    make_model(share / "tiny.gguf")
    fakes = (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL))
    for name, text in fakes:
        (share / "bin" / name).write_text(text)
        (share / "bin" / name).chmod(0o755)
    return Node(work, share)


def stack_with(model: str) -> Stack:
    return Stack("gate-1", "compute", f"{SHARE}/{model}", "127.0.0.1", 8080)


def ask_for(node: Node, model: str, timeout: float = TIMEOUT) -> Said:
    """What a server by hand says, with that file as its model."""
    settings = {"LLAMA_ARG_DEVICE": "none", "LLAMA_ARG_N_GPU_LAYERS": "0"}
    stack = stack_with(model)
    return ask(node, stack, by_hand_script(stack, settings, timeout))


def test_the_image_declares_its_stack(node: Node) -> None:
    found = look(node, "gate-1")
    assert (found.user, found.model) == ("compute", "/models/default.gguf")
    assert (found.address, found.port, found.rpc_port) == ("127.0.0.1", 8080, 50052)
    assert found.expected == "cpu"


def test_the_model_loads_and_answers(node: Node) -> None:
    said = ask_for(node, "tiny.gguf")
    found = conclude(stack_with("tiny.gguf"), said, over=("gate-1",))
    assert (found.used, found.degraded, found.tokens) == ("cpu", False, 16)
    assert found.completion.isascii()
    assert found.completion.isalpha()
    assert len(found.completion) == len(found.chat) == 8
    assert 0 < found.seconds < TIMEOUT
    again = conclude(stack_with("tiny.gguf"), ask_for(node, "tiny.gguf"), over=("gate-1",))
    assert (again.completion, again.chat) == (found.completion, found.chat)


def test_a_truncated_model_is_told_in_the_servers_own_words(node: Node) -> None:
    whole = (node.share / "tiny.gguf").read_bytes()
    (node.share / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InferenceError, match="ended before it was ready") as caught:
        conclude(stack_with("cut.gguf"), ask_for(node, "cut.gguf"), over=("gate-1",))
    assert any("model is corrupted or incomplete" in line for line in caught.value.evidence)


def test_a_server_that_never_gets_ready_is_not_waited_for_longer(
    node: Node, tmp_path: Path
) -> None:
    stuck = tmp_path / "stuck"
    stuck.write_text("#!/bin/sh\necho 'loading for ever'\nexec sleep 600\n")
    stuck.chmod(0o755)
    waiting = Node(node.work, node.share, (Bind(stuck, SERVER),))
    with pytest.raises(InferenceError, match="runs, but was not ready in time") as caught:
        conclude(stack_with("tiny.gguf"), ask_for(waiting, "tiny.gguf", 3), over=("gate-1",))
    assert caught.value.evidence == ("loading for ever",)


def over(node: Node, layers: str, lender: str) -> Said:
    """A server that may compute on `lender`."""
    words = ["sh", "-c", f"ip link set lo up\n{OVER}", "sh", layers, lender]
    return read_said(sections(node.run(words, stdin=ASK.read_bytes()).stdout))


def test_layers_lie_on_the_node_that_lends(node: Node) -> None:
    both = ("gate-1", "gate-2")
    said = over(node, "all", "127.0.0.1:50052")
    found = conclude(stack_with("tiny.gguf"), said, over=both, lender="127.0.0.1")
    assert (found.over, found.used, found.tokens) == (both, "cpu", 16)
    assert str(said.offload).startswith("3 of 3 layers offloaded")


@pytest.mark.parametrize(("layers", "lender"), [("0", "127.0.0.1:50052"), ("all", "")])
def test_a_lender_that_got_nothing_is_told(node: Node, layers: str, lender: str) -> None:
    said = over(node, layers, lender)
    with pytest.raises(InferenceError, match=r"127\.0\.0\.1 holds nothing of the model: all"):
        conclude(stack_with("tiny.gguf"), said, over=("a", "b"), lender="127.0.0.1")


def test_with_the_rpc_backend_the_count_of_layers_is_not_true(node: Node) -> None:
    """Why the buffers decide; when this fails, llama.cpp has mended what it says."""
    said = over(node, "all", "")
    assert "offloaded 3/3 layers to GPU" in said.journal
    assert said.offload
    assert (said.offload.backend, said.offload.lenders) == ("cpu", ())
