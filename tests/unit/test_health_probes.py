# SPDX-License-Identifier: Apache-2.0
"""The health checks of a node, on trees that look like /sys, /dev and /proc of one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from imagebuilder.fleet.health import HEALTH, HealthFile, Verdict
from imagebuilder.recipe.template import environment
from tests.workshop import CHECKOUT

pytestmark = pytest.mark.slow

PROGRAMS = CHECKOUT / "overlays/compute-node/files/usr/lib/imagebuilder"
LLAMA = CHECKOUT / "overlays/llama-cpp/files/usr"
BOOT = "0c1f6a3e-5f9e-4d3c-8b67-5a2f7d1c9e10"
RADEON = {"pci": "1002:7480", "name": "Radeon RX 7600 XT", "target": "gfx1102"}
AMD = {**RADEON, "modules": ["amdgpu"]}
ARC = {"pci": "8086:56a0", "name": "Arc A770", "target": "dg2", "modules": ["i915", "xe"]}
ARC_750 = {**ARC, "pci": "8086:56a1", "name": "Arc A750"}
GEFORCE = {"pci": "10de:2b85", "name": "RTX 5090", "target": "sm_120", "modules": ["nvidia"]}
NPU = {"pci": "1022:17f0", "name": "XDNA 2 NPU", "target": "", "modules": ["amdxdna"]}
RENDER = {"path": "/dev/dri/renderD*", "group": "render"}
KFD = {"path": "/dev/kfd", "group": "render"}
STATUS = {0: "ok", 1: "degraded", 2: "wrong results", 3: "missing device", 4: "unknown"}


@dataclass(frozen=True)
class FakeNode:
    """A root folder, and programs that come before those of this host."""

    root: Path

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)
        return place

    def promise(self, *hardware: object, devices: object = ()) -> None:
        promises = {"hardware": hardware, "devices": devices}
        self.write("usr/lib/imagebuilder/promises.json", json.dumps(promises))

    def plug(self, pci: str, place: str = "0000:03:00.0", driver: str = "") -> Path:
        """A PCI device in /sys."""
        folder = self.root / "sys/bus/pci/devices" / place
        vendor, device = pci.split(":")
        self.write(f"sys/bus/pci/devices/{place}/vendor", f"0x{vendor}\n")
        self.write(f"sys/bus/pci/devices/{place}/device", f"0x{device}\n")
        if driver:
            bound = self.root / "sys/bus/pci/drivers" / driver
            bound.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(bound)
        return folder

    def probe(self, name: str, text: str) -> None:
        self.write(f"usr/lib/imagebuilder/health.d/{name}", f"#!/bin/sh\n{text}\n", 0o755)

    def llama(self, name: str, *backends: str) -> None:
        """A probe of llama.cpp as an image has it, with its programs where they are here."""
        template = LLAMA / f"lib/imagebuilder/health.d/{name}.j2"
        text = environment().from_string(template.read_text()).render(llama_backends=backends)
        own = f"{LLAMA}/libexec/llama-cpp"
        here = {
            "/usr/lib/imagebuilder": f"{sys.executable} -I {PROGRAMS}",
            "/usr/libexec/llama-cpp/health": f"{sys.executable} -I {own}/health",
            "/usr/libexec/llama-cpp": own,
        }
        paths = re.compile(r"/usr/lib/imagebuilder|/usr/libexec/llama-cpp(/health\b)?")
        text = paths.sub(lambda path: here[path[0]], text)
        self.write(f"usr/lib/imagebuilder/health.d/{name}", text, 0o755)

    def program(self, name: str, text: str) -> None:
        self.write(f"bin/{name}", f"#!/bin/sh\n{text}\n", 0o755)

    def log(self, *lines: str) -> None:
        """What the kernel said."""
        text = "\n".join(("Linux version 6.12", *lines))
        self.program("journalctl", f"cat <<'END'\n{text}\nEND")

    def run(self, *argv: str | Path, limit: float = 5) -> subprocess.CompletedProcess[str]:
        env = {
            "HEALTH_ROOT": os.fspath(self.root),
            "HEALTH_LIMIT": str(limit),
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
        }
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    def check(self, *words: str) -> tuple[str, str]:
        """Verdict and words of a probe that comes with the program."""
        done = self.run(sys.executable, "-I", PROGRAMS / "health-check", *words)
        assert not done.stderr
        return STATUS.get(done.returncode, "not yet"), done.stdout.strip().splitlines()[-1]

    def health(self, *words: str, limit: float = 5) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-I", PROGRAMS / "health", *words, limit=limit)

    def verdict(self, limit: float = 5) -> HealthFile:
        """The verdict of a run, as the control node reads it."""
        done = self.health(limit=limit)
        assert done.returncode == 0, done.stderr
        text = (self.root / "run/imagebuilder/health/verdict.json").read_text()
        return HEALTH.decode(json.loads(text), "")


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = FakeNode(tmp_path)
    made.write("proc/sys/kernel/random/boot_id", f"{BOOT}\n")
    made.write("proc/uptime", "1000.00 900.00\n")
    made.write("etc/os-release", "ID=debian\nIMAGE_ID=gpu\nIMAGE_VERSION=1\n")
    (tmp_path / "run/imagebuilder/health").mkdir(parents=True)
    made.promise()
    return made


def test_a_card_that_is_not_there_is_missing(node: FakeNode) -> None:
    node.promise(AMD)
    assert node.check("pci") == ("missing device", "no PCI device 1002:7480 (Radeon RX 7600 XT)")
    node.plug("1234:1111")
    assert node.check("pci")[0] == "missing device"
    node.plug("1002:7480", "0000:0a:00.0")
    assert node.check("pci") == ("ok", "Radeon RX 7600 XT at 0000:0a:00.0")


def test_cards_of_one_driver_stand_in_for_one_another_and_others_do_not(node: FakeNode) -> None:
    node.promise(ARC, ARC_750, NPU)
    node.plug("8086:56a1")
    assert node.check("pci") == ("missing device", "no PCI device 1022:17f0 (XDNA 2 NPU)")
    node.plug("1022:17f0", "0000:c6:00.1")
    assert node.check("pci")[0] == "ok"


def test_an_image_without_hardware_promises_nothing(node: FakeNode) -> None:
    for probe in ("pci", "driver", "log"):
        assert node.check(probe)[0] == "ok"


@pytest.mark.parametrize(
    ("promise", "driver", "words"),
    [
        (AMD, "", "has no driver; it needs amdgpu"),
        (AMD, "vfio-pci", "is driven by vfio-pci, not by amdgpu"),
        (ARC, "", "has no driver; it needs i915 or xe"),
        (GEFORCE, "nouveau", "is driven by nouveau, not by nvidia"),
        (GEFORCE, "nvidia", "the driver did not initialise it"),
        (NPU, "", "has no driver; it needs amdxdna"),
    ],
)
def test_a_card_without_its_driver_is_missing(
    node: FakeNode, promise: dict[str, object], driver: str, words: str
) -> None:
    node.promise(promise)
    node.plug(str(promise["pci"]), driver=driver)
    verdict, said = node.check("driver")
    assert verdict == "missing device"
    assert said.endswith(words)


@pytest.mark.parametrize(
    ("promise", "driver"), [(AMD, "amdgpu"), (ARC, "xe"), (ARC, "i915"), (NPU, "amdxdna")]
)
def test_a_driven_card_is_alive(node: FakeNode, promise: dict[str, object], driver: str) -> None:
    node.promise(promise)
    node.plug(str(promise["pci"]), driver=driver)
    assert node.check("driver")[0] == "ok"


def test_nvidia_tells_of_each_card_that_it_initialised(node: FakeNode) -> None:
    node.promise(GEFORCE)
    node.plug("10de:2b85", "0000:01:00.0", "nvidia")
    node.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: RTX 5090\n")
    assert node.check("driver")[0] == "ok"


def test_what_drivers_tell_of_a_broken_card(node: FakeNode) -> None:
    node.promise(ARC)
    folder = node.plug("8086:56a0", driver="xe")
    (folder / "config").write_bytes(b"\xff" * 64)
    assert node.check("driver")[1].endswith("has fallen off the bus")
    (folder / "config").write_bytes(b"\x86\x80" * 32)
    (folder / "survivability_mode").touch()
    assert "survivability mode" in node.check("driver")[1]
    (folder / "survivability_mode").unlink()
    (folder / "ras").mkdir()
    (folder / "ras/umc_err_count").write_text("ue: 0\nce: 7\n")
    assert node.check("driver")[0] == "ok"
    (folder / "ras/umc_err_count").write_text("ue: 12\nce: 7\n")
    assert node.check("driver") == (
        "wrong results",
        "Arc A770 at 0000:03:00.0: 12 uncorrectable memory errors",
    )


def test_a_crash_that_the_driver_saved_is_a_finding(node: FakeNode) -> None:
    node.promise(AMD)
    folder = node.plug("1002:7480", driver="amdgpu")
    dump = node.root / "sys/class/devcoredump/devcd1"
    dump.mkdir(parents=True)
    (dump / "failing_device").symlink_to(folder)
    assert node.check("driver")[0] == "degraded"


def test_rocm_must_know_the_target(node: FakeNode) -> None:
    node.promise(AMD, devices=[KFD])
    node.plug("1002:7480", driver="amdgpu")
    node.write("dev/kfd", "")
    place = "sys/class/kfd/kfd/topology/nodes/1/properties"
    node.write(place, "simd_count 0\ngfx_target_version 0\n")
    assert node.check("driver")[1].endswith("ROCm's driver (kfd) has no gfx1102")
    node.write(place, "simd_count 64\ngfx_target_version 110002\n")
    assert node.check("driver") == ("ok", "opened /dev/kfd")


def test_device_nodes_are_opened_as_the_service_would(node: FakeNode) -> None:
    node.promise(AMD, devices=[RENDER])
    node.plug("1002:7480", driver="amdgpu")
    assert node.check("driver") == ("missing device", "there is no /dev/dri/renderD*")
    render = node.write("dev/dri/renderD128", "")
    assert node.check("driver") == ("ok", "opened /dev/dri/renderD128")
    render.unlink()
    render.symlink_to("/nowhere")
    assert node.check("driver")[0] == "missing device"


@pytest.mark.root
def test_a_device_that_only_its_group_may_open(node: FakeNode) -> None:
    node.promise(AMD, devices=[RENDER])
    node.plug("1002:7480", driver="amdgpu")
    node.write("dev/dri/renderD128", "", 0o600)
    ours = next(path for path in node.root.parents if path.name.startswith("pytest-of-"))
    for folder in (node.root, *node.root.parents):
        if folder.is_relative_to(ours):
            folder.chmod(0o755)
    program = shutil.copy(PROGRAMS / "health-check", node.root / "health-check")
    words = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-I", program, "driver"]
    done = node.run(*words)
    assert (done.returncode, done.stdout.strip()) == (
        1,
        "/dev/dri/renderD128 may be opened by render alone",
    ), done.stderr


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (["amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=2"], "degraded"),
        (
            [
                "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=2",
                "amdgpu 0000:03:00.0: amdgpu: GPU reset(1) succeeded!",
            ],
            "ok",
        ),
        (["amdgpu 0000:03:00.0: amdgpu: GPU reset(2) failed"], "missing device"),
        (["amdgpu: device lost from bus!"], "missing device"),
        (
            ["xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device as wedged."],
            "missing device",
        ),
        (["NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."], "missing device"),
        (["NVRM: Xid (PCI:0000:01:00): 48, An uncorrectable double bit error"], "wrong results"),
        (["NVRM: Xid (PCI:0000:01:00): 95, Uncontained: DRAM"], "wrong results"),
        (["NVRM: Xid (PCI:0000:01:00): 140, pid=7, Unrecovered ECC"], "wrong results"),
        (["NVRM: Xid (PCI:0000:01:00): 94, Contained: SM"], "ok"),
        (["NVRM: Xid (PCI:0000:01:00): 119, Timeout after 6s of waiting for RPC"], "degraded"),
        (["NVRM: Xid (PCI:0000:01:00): 13, Graphics SM Warp Exception"], "ok"),
        (["i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dcfdfb, in llama"], "degraded"),
        (["amdgpu 0000:03:00.0: amdgpu: SMU is initialized successfully!"], "ok"),
    ],
)
def test_the_kernel_tells_of_lost_and_hanging_devices(
    node: FakeNode, lines: list[str], verdict: str
) -> None:
    node.promise(AMD)
    node.log(*lines)
    assert node.check("log")[0] == verdict


def test_a_log_that_cannot_be_read_is_no_good_sign(node: FakeNode) -> None:
    node.promise(AMD)
    node.program("journalctl", "echo denied >&2; exit 1")
    assert node.check("log") == ("unknown", "the kernel's log cannot be read")


@pytest.mark.parametrize("program", ["health-check", "llama-cpp/health"])
@pytest.mark.parametrize("words", [[], ["pci", "twice"], ["serves", "x.service"]])
def test_a_probe_that_asks_for_no_check_has_no_finding(
    node: FakeNode, program: str, words: list[str]
) -> None:
    here = {"health-check": PROGRAMS, "llama-cpp/health": LLAMA / "libexec"}
    done = node.run(sys.executable, "-I", here[program] / program, *words)
    assert (STATUS[done.returncode], done.stdout) == (
        "unknown", f"no such check: {' '.join(words)}\n"
    )  # fmt: skip
    assert "usage:" in done.stderr


def readings(node: FakeNode) -> dict[str, int]:
    """What the probe of readings prints; it is never a finding."""
    done = node.run(sys.executable, "-I", PROGRAMS / "health-check", "readings")
    *lines, words = done.stdout.strip().splitlines()
    assert (done.returncode, words, done.stderr) == (0, f"{len(lines)} readings", "")
    return {name: int(value) for _, name, value in map(str.split, lines)}


def test_temperatures_and_memory_are_read_where_the_kernel_tells(node: FakeNode) -> None:
    assert readings(node) == {}
    node.promise(AMD)
    card = node.plug("1002:7480", driver="amdgpu")
    node.plug("1002:1478", "0000:02:00.0")
    chips = (("k10temp", None, ("45125", "51750")), ("amdgpu", card, ("67000", "", "-1")),
             ("nvme", None, ("99000",)), ("amdgpu", node.root / "other", ("98000",)))  # fmt: skip
    for number, (name, device, values) in enumerate(chips):
        chip = f"sys/class/hwmon/hwmon{number}"
        node.write(f"{chip}/name", f"{name}\n")
        if device:
            (node.root / chip / "device").symlink_to(device)
        for index, value in enumerate(values, 1):
            node.write(f"{chip}/temp{index}_input", f"{value}\n")
    (card / "mem_info_vram_used").write_text("1073741824\n")
    (card / "mem_info_vram_total").write_text("17163091968\n")
    node.write("proc/meminfo", "MemTotal:       65536 kB\nMemFree: 1 kB\nMemAvailable: 16384 kB\n")
    assert readings(node) == {
        "processor-celsius": 51, "card-celsius": 67, "card-memory-used": 1 << 30,
        "card-memory-size": 17163091968, "memory-used": 48 << 20, "memory-size": 64 << 20,
    }  # fmt: skip


def test_nvidia_is_asked_for_what_the_kernel_does_not_tell(node: FakeNode) -> None:
    said = "61, 1024, 32607\n74, [N/A], 32607\n58, 2048, 32607"
    node.program("nvidia-smi", f"printf '%s\\n' '{said}'")
    assert readings(node) == {}  # an image without NVIDIA's driver does not ask
    node.promise(GEFORCE)
    assert readings(node) == {
        "card-celsius": 61, "card-memory-used": 3072 << 20, "card-memory-size": 65214 << 20,
    }  # fmt: skip
    node.program("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert readings(node) == {}


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("ActiveState=inactive\nResult=exec-condition", "ok"),
        ("ActiveState=failed\nResult=exit-code", "degraded"),
        ("ActiveState=activating\nResult=success", "not yet"),
        ("ActiveState=active\nResult=success", "not yet"),  # and nobody listens
    ],
)
def test_a_service_that_failed_is_a_finding_and_one_that_starts_is_not_yet(
    node: FakeNode, state: str, verdict: str
) -> None:
    node.program("systemctl", f"printf '%s\\n' '{state}'")
    node.write("etc/default/x", "X_HOST=127.0.0.1\nX_PORT=1\n")
    assert node.check("serves", "x.service", "/etc/default/x", "X_HOST", "X_PORT")[0] == verdict


class FakeLlama(BaseHTTPRequestHandler):
    """A llama-server that has one slot."""

    busy = False

    def do_GET(self) -> None:
        self.answer({"/health": {"status": "ok"}, "/slots": [{"is_processing": self.busy}]})

    def do_POST(self) -> None:
        self.answer({"/completion": {"timings": {"predicted_per_second": 42.0}}})

    def answer(self, values: dict[str, object]) -> None:
        self.send_response(200 if self.path in values else 501)
        self.end_headers()
        self.wfile.write(json.dumps(values.get(self.path)).encode())

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def test_a_server_that_answers_is_measured_unless_it_is_busy(node: FakeNode) -> None:
    node.program("systemctl", "printf 'ActiveState=active\\nResult=success\\n'")
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeLlama) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        node.write("etc/default/x", f"X_HOST=0.0.0.0\nX_PORT={server.server_port}\n")
        words = ("/etc/default/x", "X_HOST", "X_PORT")
        assert node.check("serves", "x.service", *words) == ("ok", "x.service answers")
        assert node.check("speed", *words) == ("ok", "42.0 tokens/s")
        FakeLlama.busy = True
        assert node.check("speed", *words)[1].startswith("not measured: the server is busy")
        server.shutdown()
    assert node.check("speed", *words)[1].startswith("not measured: ")


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_settings_may_be_in_the_quotes_that_systemd_takes_off(node: FakeNode, quote: str) -> None:
    node.program("systemctl", "printf 'ActiveState=active\\nResult=success\\n'")
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeLlama) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = f"{quote}{server.server_port}{quote}"
        node.write("etc/default/x", f"X_HOST={quote}127.0.0.1{quote}\n X_PORT = {port} \n")
        found = node.check("serves", "x.service", "/etc/default/x", "X_HOST", "X_PORT")
        assert found == ("ok", "x.service answers")
        server.shutdown()


def test_the_worst_verdict_counts_and_all_words_are_kept(node: FakeNode) -> None:
    node.probe("present-pci", "echo two; exit 3")
    node.probe("serves-web", "echo down; exit 1")
    node.probe("alive-log", "echo fine")
    found = node.verdict()
    assert (found.verdict, found.words) == (Verdict.MISSING, "pci: two; web: down")
    assert [(check.stage, check.name) for check in found.checks] == [
        ("present", "pci"), ("alive", "log"), ("serves", "web"),
    ]  # fmt: skip
    assert (found.release, found.boot_id, found.uptime) == ("gpu@1", BOOT, 1000.0)
    metrics = (node.root / "run/imagebuilder/health/health.prom").read_text()
    assert 'imagebuilder_health{verdict="missing device"} 1\n' in metrics
    assert 'imagebuilder_health_check_ok{check="log"} 1\n' in metrics


def test_a_probe_that_hangs_is_killed_with_its_children_and_is_a_finding(node: FakeNode) -> None:
    beat = node.root / "beat"
    node.probe("alive-stuck", f"while :; do echo >> {beat}; sleep 0.1; done & wait")
    node.probe("present-pci", "echo fine")
    began = time.monotonic()
    found = node.verdict(limit=1)
    assert time.monotonic() - began < 20
    assert (found.verdict, found.words) == (Verdict.UNKNOWN, "stuck: hangs: killed after 1 s")
    beaten = beat.stat().st_size
    time.sleep(0.5)
    assert 0 < beaten == beat.stat().st_size


def test_a_probe_that_is_slow_while_the_node_starts_is_run_again(node: FakeNode) -> None:
    node.write("proc/uptime", "60.00 1.00\n")
    node.probe("alive-slow", f"[ -e {node.root}/warm ] || {{ touch {node.root}/warm; sleep 600; }}")
    assert node.verdict(limit=1).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        ("echo 'temperature: N/A'", "unknown", "x: temperature: N/A"),
        ("exit 9", "unknown", "x: exit status 9"),
        ("kill -SEGV $$", "unknown", "x: exit status -11"),
        ("printf 'a\\033[2Jb'; exit 1", "degraded", "x: a [2Jb"),
        ("yes | head -c 9000000; exit 2", "wrong results", "x: y"),
    ],
)
def test_what_a_probe_leaves_open_is_unknown(
    node: FakeNode, text: str, verdict: str, words: str
) -> None:
    node.probe("alive-x", text)
    found = node.verdict()
    assert (found.verdict, found.words) == (verdict, words)


def test_fewer_cards_than_earlier_in_this_boot_are_missing(node: FakeNode) -> None:
    node.probe("present-pci", "echo count 1002:7480 2; echo fine")
    assert node.verdict().verdict is Verdict.OK
    node.probe("present-pci", "echo count 1002:7480 1; echo fine")
    found = node.verdict()
    assert found.verdict is Verdict.MISSING
    assert found.words == "pci: 1002:7480: 1, but 2 earlier in this boot"


def test_slower_than_usual_is_degraded(node: FakeNode) -> None:
    for rate in (50, 52, 51):
        node.probe("serves-x", f"echo rate tokens/s {rate}; echo fine")
        assert node.verdict().verdict is Verdict.OK
    node.probe("serves-x", "echo rate tokens/s 12.5; echo fine")
    found = node.verdict()
    assert found.verdict is Verdict.DEGRADED
    assert found.words == "x: tokens/s: 12.5, but usually 51 in this boot"


def test_what_takes_the_device_from_others_runs_once_a_boot(node: FakeNode) -> None:
    node.probe("computes-x", f"echo x >> {node.root}/runs; echo differs; exit 2")
    assert [node.verdict().verdict for _ in range(3)] == [Verdict.WRONG] * 3
    assert (node.root / "runs").read_text() == "x\n"
    node.write("proc/sys/kernel/random/boot_id", "another\n")
    node.verdict()
    assert (node.root / "runs").read_text() == "x\nx\n"


def test_history_is_bounded_and_damage_to_it_does_no_harm(node: FakeNode) -> None:
    node.probe("present-x", "echo fine")
    lines = json.dumps({"uptime": 1.0, "verdict": "ok", "words": "", "figures": {}}) + "\n"
    history = node.write("run/imagebuilder/health/history.jsonl", lines * 500 + '{"half')
    node.write("run/imagebuilder/health/verdict.json", "{")
    assert node.verdict().verdict is Verdict.OK
    assert len(history.read_text().splitlines()) == 200


def test_the_gate_is_open_for_a_fresh_ok_alone(node: FakeNode) -> None:
    assert node.health("--gate").returncode == 1
    node.probe("present-x", "echo fine")
    node.verdict()
    assert node.health("--gate").returncode == 0
    node.write("proc/uptime", "9000.00 1.00\n")
    assert node.health("--gate").stdout.startswith("unknown: there is no verdict of the last")
    node.probe("present-x", "echo gone; exit 3")
    node.verdict()
    done = node.health("--gate")
    assert (done.returncode, done.stdout) == (1, "missing device: x: gone\n")


def test_a_lavapipe_that_pretends_to_be_a_card_is_the_processor(node: FakeNode) -> None:
    listed = "Available devices:\n  Vulkan0: llvmpipe (LLVM 19.1.7, 256 bits) (31000 MiB, 9 free)"
    node.program("llama-server", f"echo '{listed}'")
    assert node.run(LLAMA / "libexec/llama-cpp/find-gpus", "Vulkan").returncode == 1
    node.llama("computes-llama-cpp", "vulkan")
    found = node.verdict()
    assert found.verdict is Verdict.DEGRADED
    assert found.words.endswith("llama.cpp finds no GPU and would run on the processor")


def test_a_model_is_looked_for_where_the_server_answers(node: FakeNode) -> None:
    node.program(
        "systemctl",
        "case $* in *MainPID*) printf 'MainPID=4711\\nInvocationID=ab\\n' ;; *is-active*) ;;"
        " *) printf 'ActiveState=active\\nResult=success\\n' ;; esac",
    )
    node.program("journalctl", "true")
    node.program("nvidia-smi", "exit 1")
    node.write("proc/4711/fdinfo/0", "pos: 0\n")
    FakeLlama.busy = False
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeLlama) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        node.write("etc/default/llama-server", f"LLAMA_ARG_PORT={server.server_port}\n")
        node.llama("serves-llama-cpp", "hip")
        found = node.verdict()
        node.llama("serves-llama-cpp", "rpc")
        elsewhere = node.verdict()
        server.shutdown()
    assert found.verdict is Verdict.DEGRADED, found
    assert "none of the GPU's memory" in found.words
    assert elsewhere.verdict is Verdict.OK, elsewhere
    history = (node.root / "run/imagebuilder/health/history.jsonl").read_text()
    assert '{"llama-cpp tokens/s": 42.0}' in history


@pytest.mark.parametrize(
    ("tool", "verdict"),
    [
        ("exit 0", Verdict.UNKNOWN),
        ("echo '  MUL_MAT(m=1): OK'", Verdict.OK),
        ("echo '[MUL_MAT] ERR = 0.9 > 0.0005 '; exit 1", Verdict.WRONG),
        ("sleep 60", Verdict.UNKNOWN),
    ],
)
def test_results_are_compared_with_the_processor(
    node: FakeNode, tool: str, verdict: Verdict
) -> None:
    node.program("llama-server", "echo '  Vulkan0: AMD Radeon (16000 MiB, 15000 MiB free)'")
    node.program("test-backend-ops", tool)
    node.llama("computes-llama-cpp", "hip", "vulkan")
    assert node.verdict(limit=2).verdict is verdict


def test_a_check_that_fails_itself_says_nothing_of_the_node(node: FakeNode) -> None:
    node.write("usr/lib/imagebuilder/promises.json", '{"hardware": [{}]}')
    assert node.check("pci") == ("unknown", "KeyError: 'pci'")


def test_the_probes_that_ship_have_names_and_are_programs() -> None:
    shipped = sorted(CHECKOUT.glob("overlays/*/files/usr/lib/imagebuilder/health.d/*"))
    assert {path.name.removesuffix(".j2") for path in shipped} == {
        "present-pci", "alive-driver", "alive-log", "alive-nvidia", "alive-readings",
        "serves-llama-cpp", "computes-llama-cpp", "serves-vllm",
    }  # fmt: skip
    assert all(os.access(path, os.X_OK) for path in shipped)
