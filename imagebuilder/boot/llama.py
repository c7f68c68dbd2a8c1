# SPDX-License-Identifier: Apache-2.0
"""llama.cpp on a node: the scripts that start and follow it there, and what they print.

A script prints parts, each after a line `== NAME`.  A node under test is emulated and slow, so
scripts wait by themselves, and there are few of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from imagebuilder.boot.offload import Offload, read_offload
from imagebuilder.decode import parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.report.types import CPU

UNIT = "llama-server.service"
RPC_UNIT = "llama-rpc-server.service"
BY_HAND = "imagebuilder-test-llama.service"
RPC_BY_HAND = "imagebuilder-test-rpc.service"
PORT_BY_HAND = 18080
TRACE = 4  # the verbosity at which llama.cpp says where it puts a model
REFUSED = "no device of kind"  # find-gpus
DROP_INS, DROP_IN = "/run/systemd/system/$unit.d", "imagebuilder-test.conf"
# What an image brings for GPUs, the preferred first.
LIBRARIES = (
    ("libggml-hip.so", "rocm"), ("libggml-cuda.so", "cuda"), ("libggml-vulkan.so", "vulkan"),
)  # fmt: skip
SHOWN_LINES = 20

LOOK = f"""\
echo '== node'; uname -n
echo '== unit'; systemctl cat {UNIT}
echo '== settings'; cat /etc/default/llama-server
echo '== rpc settings'; cat /etc/default/llama-rpc-server 2> /dev/null
echo '== backends'; ls /usr/lib/*/ggml/backends*
echo '== end'
"""
# `follow` waits for the unit to run and asks it, `await_port` waits for its port.  A unit that has
# failed waits for its next try (auto-restart), which would end as the last one did.
FUNCTIONS = """\
stop() { systemctl stop "$unit"; systemctl reset-failed "$unit"; } 2> /dev/null
show() { systemctl show --property "$1" --value "$unit"; }
left() { echo "$((end - $(date +%s)))"; }
tell() {
    echo
    echo '== state'
    systemctl show --property ActiveState,SubState,Result "$unit"
    echo '== journal'
    journalctl --quiet --no-pager --boot --output cat --unit "$unit"
    echo '== end'
}
follow() {
    echo '== answers'
    while test "$(left)" -gt 0; do
        case $(show ActiveState)/$(show SubState) in
        active/*) python3 -c "$program" "$address" "$port" "$(show MainPID)" "$(left)"; break ;;
        failed/* | */auto-restart*) break ;;
        esac
        sleep 1
    done
    tell
}
await_port() {
    while test "$(left)" -gt 0; do
        case $(show ActiveState)/$(show SubState) in failed/* | */auto-restart*) break ;; esac
        if ss -Hltn "sport = :$port" | grep -q .; then
            echo '== ready'
            break
        fi
        sleep 1
    done
    tell
}
"""
# What systemd gives to every service that it starts from now on: that takes no reload, which costs
# an emulated node seconds.
WATCH = f"systemctl set-environment LLAMA_ARG_LOG_VERBOSITY={TRACE}"
WATCHES = "systemctl show-environment | grep -q ^LLAMA_ARG_LOG_VERBOSITY="
# The drop-in adds networks to those that the image lets borrow: the ones this node is in.
LEND = f"""\
echo '== was'
systemctl is-active "$unit"
mkdir -p "{DROP_INS}"
{{
    echo '[Service]'
    echo "IPAddressAllow=$(ip -4 -o route show scope link | cut -d ' ' -f 1 | paste -s -d ' ')"
}} > "{DROP_INS}/{DROP_IN}"
systemctl daemon-reload
systemctl restart "$unit"
await_port
"""
TAKE_BACK = f"""\
rm "{DROP_INS}/{DROP_IN}"
rmdir --ignore-fail-on-non-empty "{DROP_INS}"
systemctl daemon-reload
"""


@dataclass(frozen=True)
class Stack:
    """What an image declares of its llama.cpp.

    `node` is whose units were read.  `kinds` are the GPUs that its service does not go without,
    `expected` the backend that the image is for, which may go without.  `rpc_port` is 0 where the
    image has no RPC.
    """

    node: str
    user: str
    model: str
    address: str
    port: int
    kinds: tuple[str, ...] = ()
    expected: str = CPU
    rpc_port: int = 0


@dataclass(frozen=True)
class Said:
    """What a server answered and logged; `answers` is None if it did not come so far.

    `state` are properties of its unit.
    """

    answers: Mapping[str, object] | None
    state: Mapping[str, str]
    journal: str
    offload: Offload | None

    @property
    def refused(self) -> bool:
        """Whether the service wants a GPU that is not there."""
        tried = self.state.get("ActiveState") in ("activating", "failed")
        return self.answers is None and tried and REFUSED in self.journal

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of its journal."""
        return tuple(line for line in self.journal.splitlines() if line.strip())[-SHOWN_LINES:]


def service_script(stack: Stack, timeout: float) -> str:
    """Ask the image's own service; it is started again only if it does not log its load."""
    return f"""\
{beginning(UNIT, stack.address, stack.port, timeout)}
if ! {WATCHES}; then
    {WATCH}
    systemctl try-restart "$unit"
fi
follow
"""


def by_hand_script(stack: Stack, settings: Mapping[str, str], timeout: float) -> str:
    """Ask a server that is started with `settings`, in the service's place."""
    everything = {
        "LLAMA_ARG_MODEL": stack.model,
        "LLAMA_ARG_HOST": "127.0.0.1",
        "LLAMA_ARG_PORT": str(PORT_BY_HAND),
        "LLAMA_ARG_LOG_VERBOSITY": str(TRACE),
        **settings,
    }
    return f"""\
{beginning(BY_HAND, "127.0.0.1", PORT_BY_HAND, timeout)}
{run_unit(BY_HAND, stack.user, everything, "/usr/bin/llama-server")}
follow
stop
"""


def lend_script(stack: Stack, timeout: float, *, by_hand: bool) -> str:
    """Start the RPC server, and wait until it can be reached."""
    unit = RPC_BY_HAND if by_hand else RPC_UNIT
    begin = beginning(unit, "", stack.rpc_port, timeout)
    if not by_hand:
        return f"{begin}{LEND}"
    settings = {"LLAMA_RPC_PORT": str(stack.rpc_port)}
    command = run_unit(unit, stack.user, settings, "/usr/libexec/llama-cpp/rpc-server")
    return f"{begin}{command}\nawait_port\n"


def take_back_script(*, by_hand: bool, running: bool) -> str:
    """End the lending; a service that was `running` before goes on."""
    unit = RPC_BY_HAND if by_hand else RPC_UNIT
    script = f"unit={unit}\n{FUNCTIONS}" + ("" if running else "stop\n")
    return script if by_hand else script + TAKE_BACK


def stop_script() -> str:
    """End the image's own service where it refuses to run, and forget that it failed."""
    return f"unit={UNIT}\n{FUNCTIONS}stop\n"


def beginning(unit: str, address: str, port: int, timeout: float) -> str:
    """What a script begins with; $program is what it gets on stdin."""
    return f"""\
unit={unit} address={shlex.quote(address)} port={port}
end=$(($(date +%s) + {round(timeout)}))
program=$(cat)
{FUNCTIONS}"""


def run_unit(unit: str, user: str, settings: Mapping[str, str], program: str) -> str:
    """The command that starts a program as a unit, as the service's user and without its GPUs."""
    words = ["systemd-run", "--quiet", f"--unit={unit}", f"--uid={user}"]
    words += ["--property=PrivateTmp=yes", "--property=PrivateDevices=yes"]
    caches = {"LLAMA_CACHE": "/tmp", "XDG_CACHE_HOME": "/tmp"}
    words += [f"--setenv={name}={value}" for name, value in {**caches, **settings}.items()]
    return shlex.join([*words, program])


def read_stack(found: Mapping[str, str]) -> Stack | None:
    """The declaration, from what LOOK found; None if something is missing."""
    unit, settings = found.get("unit", ""), variables(found.get("settings", ""))
    user = re.search(r"^User=(\S+)$", unit, re.MULTILINE)
    if not user or not {"LLAMA_ARG_MODEL", "LLAMA_ARG_PORT"} <= settings.keys():
        return None
    guard = re.search(r"^ExecStartPre=\S*/find-gpus(.*)$", unit, re.MULTILINE)
    kinds = tuple(guard[1].split()) if guard else ()
    backends = found.get("backends", "").split()
    there = [backend for library, backend in LIBRARIES if library in backends]
    address = settings.get("LLAMA_ARG_HOST", "")
    return Stack(
        node=found.get("node", "").strip(),
        user=user[1],
        model=settings["LLAMA_ARG_MODEL"],
        address=address if address not in ("", "0.0.0.0") else "127.0.0.1",
        port=int(settings["LLAMA_ARG_PORT"]),
        kinds=kinds,
        expected=next(iter([*(kind.lower() for kind in kinds), *there]), CPU),
        rpc_port=int(variables(found.get("rpc settings", "")).get("LLAMA_RPC_PORT", 0)),
    )


def read_said(found: Mapping[str, str]) -> Said:
    """What a script that followed a server has found."""
    text = found.get("answers", "").strip()
    answers: Json
    try:
        answers = parse_object(text, "the answers") if text else None
    except InputError as error:
        answers = {"error": error.faults[0].what}
    journal = found.get("journal", "")
    return Said(answers, variables(found.get("state", "")), journal, read_offload(journal))


def sections(text: str) -> dict[str, str]:
    """The parts of a script's output."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("== "):
            name = line.removeprefix("== ")
            found[name] = []
        elif name:
            found[name].append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def variables(text: str) -> dict[str, str]:
    """Lines NAME=VALUE."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs if not name.startswith("#")}
