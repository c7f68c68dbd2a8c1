# SPDX-License-Identifier: Apache-2.0
"""What the commands of a site's services ask, write and do to cards, in scripts and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.proof.reading.scripts import unit_commands, with_values
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.programs.commands import prove_card_tools, prove_readings
from imagebuilder.proof.system.programs.extras import prove_extras
from imagebuilder.proof.system.programs.local_requests import prove_requests
from imagebuilder.recipe.expectations import Expectations, ExpectedEngine
from tests.unit.proof.trees import Content, Link, Program, Sandbox, make_tree, running, subject

GEFORCE = ("10de:2b85", "GeForce RTX 5090", "sm_120")
UNIT, ENGINE = "/etc/systemd/system/a.service", "llama-server.service"
SCRIPT, RUN = "/usr/local/sbin/watch", "/usr/local/sbin/watch"
SHELL: dict[str, Content] = {"/bin/sh": Link("dash"), "/bin/dash": ""}
CHECK = "#!/bin/sh\nwget -q http://127.0.0.1:{}/health || systemctl restart llama-server\n"
PROXY = "http_proxy=http://proxy:3128"
Prove = Callable[[Subject], Iterator[Finding]]


def told(
    root: Path,
    prove: Prove,
    files: dict[str, Content],
    *commands: str,
    values: Mapping[str, tuple[str, ...]] | None = None,
) -> list[str]:
    """What is said of a.service with a command, b.service with the next one, beside an engine."""
    settings = {f"{UNIT[:-9]}b.service": "[Service]\n", UNIT: "[Service]\n"}
    given = subject(
        make_tree(root, {**SHELL, **settings, **files}),
        expectations=Expectations(engines=(ExpectedEngine("llama.cpp", unit=ENGINE),)),
        hardware=[GEFORCE],
        run=Sandbox(),
    )
    given.__dict__["shipped"] = {}
    loaded = {"Unit Load State": ("loaded",)}
    units = {
        name: LoadedUnit(name, (f"/etc/systemd/system/{name}",), {**loaded, **(values or {})},
                         {"ExecStart": (tuple(command.split()),)})
        for name, command in zip(("a.service", "b.service"), commands, strict=False)
    }  # fmt: skip
    server = {"ExecStart": (("/usr/bin/llama-server",),)}
    units[ENGINE] = LoadedUnit(ENGINE, (f"/etc/systemd/system/{ENGINE}",), loaded, server)
    startup = Startup(frozenset(units), {}, units, ())
    found = list(prove(running(given, startup)))
    assert all(each.level is Level.WARNING for each in found)
    return [each.what for each in found]


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("out=/var/a\ncat >$out.new\n", "out=/var/a\ncat >/var/a.new\n"),
        ('D="/a"\nF=$D/b\ncat ${F}\n', 'D="/a"\nF=/a/b\ncat /a/b\n'),
        ("a=1\na=2\necho $a\n", "a=1\na=2\necho $a\n"),
        ("a=$(date)\necho $a\n", "a=$(date)\necho $a\n"),
        ("a=/x\nfor a in 1; do echo $a; done\n", "a=/x\nfor a in 1; do echo $a; done\n"),
    ],
)
def test_variables_that_get_one_value(text: str, becomes: str) -> None:
    assert with_values(text) == becomes


def test_commands_of_scripts_that_scripts_start(tmp_path: Path) -> None:
    files: dict[str, Content] = {
        UNIT: "[Service]\n",
        SCRIPT: Program("#!/bin/sh\n/usr/local/sbin/next one\n"),
        "/usr/local/sbin/next": Program(f"#!/bin/sh\necho two\n{SCRIPT}\n"),
    }
    given = subject(make_tree(tmp_path, {**SHELL, **files}), run=Sandbox())
    given.__dict__["shipped"] = {}
    unit = LoadedUnit(
        "a.service", (UNIT,), {"Unit Load State": ("loaded",)}, {"ExecStart": ((SCRIPT,),)}
    )
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())
    found = [(each.said, each.words) for each in unit_commands(running(given, startup))]
    assert found == [
        ("a.service", (SCRIPT,)),
        (SCRIPT, ("/usr/local/sbin/next", "one")),
        ("/usr/local/sbin/next", ("echo", "two")),
        ("/usr/local/sbin/next", (SCRIPT,)),
    ]


@pytest.mark.parametrize(
    ("script", "environment", "said"),
    [
        (CHECK.format(8080), (PROXY,), "no_proxy of a.service is not set"),
        (CHECK.format(8080), (PROXY, "no_proxy=localhost"), "does not name 127.0.0.1 (localhost)"),
        (CHECK.format(8080), (PROXY, "no_proxy=127.0.0.1,localhost"), ""),
        (CHECK.format(8080), (PROXY, "no_proxy=127.0.0.0/8"), "does not name 127.0.0.1"),
        (CHECK.format(8080), ("HTTP_PROXY=http://proxy:3128",), ""),
        (CHECK.format(8080), ("https_proxy=http://proxy:3128",), ""),
        (CHECK.format(8080), (), ""),
        (CHECK.format(8080).replace("-q", "--no-proxy"), (PROXY,), ""),
        ("#!/bin/sh\nunset http_proxy\ncurl localhost:8080/\n", (PROXY,), ""),
        ("#!/bin/sh\ncurl localhost:8080/\n", (PROXY,), "asks localhost:8080/ through the proxy"),
        ("#!/bin/sh\ncurl http://127.0.0.1:8080/\n", (PROXY, "NO_PROXY=127.0.0.0/8"), ""),
        ("#!/bin/sh\ncurl http://127.0.0.1:8080/\n", (PROXY, "NO_PROXY=*"), ""),
        ("#!/bin/sh\ncurl http://head.lab:8080/\n", (PROXY,), ""),
    ],
)
def test_requests_to_the_node_through_a_proxy(
    tmp_path: Path, script: str, environment: Sequence[str], said: str
) -> None:
    values = {"Environment": tuple(environment)}
    found = told(tmp_path, prove_requests, {SCRIPT: Program(script)}, RUN, values=values)
    assert [said in each for each in found] == [True] * bool(said)


def test_a_proxy_that_the_program_s_own_file_leaves_out(tmp_path: Path) -> None:
    files: dict[str, Content] = {
        SCRIPT: Program(CHECK.format(8080)),
        "/etc/wgetrc": "use_proxy=off",
    }
    assert told(tmp_path, prove_requests, files, RUN, values={"Environment": (PROXY,)}) == []


@pytest.mark.parametrize(
    ("script", "other", "files", "said"),
    [
        (CHECK.format(8000), "/opt/x", {}, "nothing in the image listens on port 8000 (vLLM's by"),
        (CHECK.format(9999), "/opt/x", {}, "listens on 8080, and the script restarts or stops it"),
        (CHECK.format(8080), "/opt/x", {}, ""),
        (CHECK.format(9999), "/opt/x --port 9999", {}, ""),
        (CHECK.format(9999), "/opt/x", {"/etc/nginx/nginx.conf": "listen 9999;\n"}, ""),
        (CHECK.format(9999), "/opt/x", {"/etc/nftables.conf": "dport 9999 accept\n"}, "port 9999"),
        ("#!/bin/sh\ncurl http://127.0.0.1:9999/\n", "/opt/x", {}, ""),
        (CHECK.format(8000), "/opt/vllm/bin/vllm serve /models/m", {}, ""),
        ("#!/bin/sh\ncurl http://127.0.0.1:8000/\n", "/opt/x", {}, "port 8000 (vLLM's by default)"),
    ],
)
def test_requests_to_a_port_that_nothing_has(
    tmp_path: Path, script: str, other: str, files: dict[str, Content], said: str
) -> None:
    found = told(tmp_path, prove_requests, {SCRIPT: Program(script), **files}, RUN, other)
    assert [said in each for each in found] == [True] * bool(said)


EXPORTER = "/usr/bin/node_exporter --collector.textfile.directory="
WRITE = "#!/bin/sh\nout=/var/lib/a/disks.prom\necho x >$out.new\nmv $out.new $out\n"


@pytest.mark.parametrize(
    ("exporter", "said"),
    [
        (f"{EXPORTER}/var/lib/b", "writes to /var/lib/a: b.service reads /var/lib/b"),
        (f"{EXPORTER}/var/lib/a/", ""),
        (f"{EXPORTER}/var/lib/*", ""),
        ("/usr/bin/node_exporter", "reads no folder"),
        ("/usr/bin/prometheus-node-exporter", "reads /var/lib/prometheus/node-exporter"),
        ("/usr/bin/telegraf", ""),
    ],
)
def test_readings_that_nobody_collects(tmp_path: Path, exporter: str, said: str) -> None:
    files: dict[str, Content] = {
        SCRIPT: Program(WRITE),
        "/usr/bin/node_exporter": "\0",
        "/usr/bin/prometheus-node-exporter": "\0/var/lib/prometheus/node-exporter\0",
    }
    found = told(tmp_path, prove_readings, files, RUN, exporter)
    assert [said in each for each in found] == [True] * bool(said)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/usr/bin/nvidia-smi --lock-gpu-clocks=210,1410", "at most 1410 MHz (--lock-gpu-clocks)"),
        ("/usr/bin/nvidia-smi -lgc 1410", "cards of sm_120 reach 2280 MHz or more"),
        ("/usr/bin/nvidia-smi -lgc 210,2400", ""),
        ("/usr/bin/nvidia-smi --reset-gpu-clocks", ""),
        ("/usr/bin/nvidia-smi -pm 1", ""),
    ],
)
def test_clocks_of_other_cards(tmp_path: Path, command: str, said: str) -> None:
    found = told(tmp_path, prove_card_tools, {}, command)
    assert [said in each for each in found] == [True] * bool(said)


RECOVER = "#!/bin/sh\nfor one in /sys/kernel/debug/dri/*/amdgpu_gpu_recover; do cat $one; done\n"
TIMER = {"TriggeredBy": ("night.timer",)}


@pytest.mark.parametrize(
    ("script", "values", "said"),
    [
        (RECOVER, TIMER, f"night.timer resets the cards (amdgpu_gpu_recover), while {ENGINE}"),
        ("#!/bin/sh\nnvidia-smi --gpu-reset -i 0\n", TIMER, "(nvidia-smi --gpu-reset -i)"),
        ("#!/bin/sh\nsystemctl stop llama-server\nnvidia-smi -r\n", TIMER, ""),
        (RECOVER, {**TIMER, "Conflicts": (ENGINE,)}, ""),
        ("#!/bin/sh\necho 1 >/sys/bus/pci/drivers/amdgpu/0000:03:00.0/reset\n", TIMER, "(reset)"),
        ("#!/bin/sh\necho 1 >/sys/class/net/eth1/device/reset\n", TIMER, ""),
        (RECOVER, {}, ""),  # once, at boot
        (f"{RECOVER.splitlines()[0]}\n# amdgpu_gpu_recover\necho x\n", TIMER, ""),
    ],
)
def test_resets_on_a_schedule(
    tmp_path: Path, script: str, values: dict[str, tuple[str, ...]], said: str
) -> None:
    found = told(tmp_path, prove_card_tools, {SCRIPT: Program(script)}, RUN, values=values)
    assert [said in each for each in found] == [True] * bool(said)


SITE = "/opt/fetch/lib/python3.14/site-packages"


@pytest.mark.parametrize(
    ("version", "value", "more", "count"),
    [
        ("0.36.0", "1", {}, 1),
        ("0.36.0", "0", {}, 0),
        ("1.2.0", "1", {}, 0),  # which ignores the variable
        ("0.36.0", "1", {f"{SITE}/hf_transfer-0.1.9.dist-info/METADATA": "Name: hf_transfer\n"}, 0),
    ],
)
def test_packages_that_a_variable_needs(
    tmp_path: Path, version: str, value: str, more: dict[str, Content], count: int
) -> None:
    metadata = f"Name: huggingface-hub\nVersion: {version}\n"
    files: dict[str, Content] = {
        "/opt/fetch/bin/hf": Program("#!/opt/fetch/bin/python\n"),
        f"{SITE}/huggingface_hub-{version}.dist-info/METADATA": metadata,
        **more,
    }
    values = {"Environment": (f"HF_HUB_ENABLE_HF_TRANSFER={value}",)}
    command = "/opt/fetch/bin/hf download a/b"
    found = told(tmp_path, prove_extras, files, command, values=values)
    assert ["refuses downloads" in each for each in found] == [True] * count
