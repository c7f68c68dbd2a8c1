# SPDX-License-Identifier: Apache-2.0
"""A third engine, of files in a project's overlays/ alone, from its recipe to its answer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from imagebuilder.boot.disk import make_models_disk
from imagebuilder.boot.engine import (
    EngineNode,
    EngineUnderTest,
    InferenceError,
    infer,
    infer_over,
    prepare,
)
from imagebuilder.boot.gate import (
    make_disk,
    make_tiny_model,
    untestable_engine,
)
from imagebuilder.digest import digest_of
from imagebuilder.errors import InputError
from imagebuilder.image.proof import Finding
from imagebuilder.plan import config_step, expects_of
from imagebuilder.process import Completed, run
from imagebuilder.proof.fallback.prove import prove_fallback
from imagebuilder.recipe.engines import engines_of, load_engines
from imagebuilder.recipe.types import Recipe
from imagebuilder.report.types import Outcome
from imagebuilder.tree import ReleaseName, Tree
from tests.unit.probes import server
from tests.unit.proof.trees import Content, Program, Sandbox, facts, faults, make_tree
from tests.unit.proof.trees import subject as make_subject
from tests.unit.recipe.conftest import Project, make_project

UNIT = "/etc/systemd/system/whisper-server.service"
GUARD = "/usr/libexec/whisper-cpp/find-gpu"
PLUGIN = "/usr/lib/x86_64-linux-gnu/whisper/libggml-vulkan.so"
OVERLAY = """\
description: whisper.cpp as a service
vars:
  whisper_backends: {type: list, default: [vulkan], description: Backends}
proof:
  engines:
    - engine: whisper.cpp
      backends: [vulkan]
      unit: whisper-server.service
engine:
  name: whisper.cpp
  option: whisper_backends
  plugins: {files: ["/usr/lib/*/whisper/libggml-{backend}.so"], package: "whisper-{backend}"}
  devices: {command: [/usr/bin/whisper-server, --devices], processor: [CPU]}
  boot:
    program: probes/boot
    model:
      program: probes/model.py
      settings: /etc/default/whisper-server
      variable: WHISPER_MODEL
"""
SERVICE = f"""\
[Service]
ExecStartPre={GUARD}
ExecStart=/usr/bin/whisper-server
"""
# A shell script, for a program may be in any language that the image has.
BOOT = """\
#!/bin/sh
set -eu
part=$(dirname "$0")/transcribe.py
case $1 in
prepare) echo '{}' ;;
ask) exec python3 "$part" "$WHISPER_PORT" ;;
esac
"""
TRANSCRIBE = """\
import json, sys, urllib.error, urllib.request
try:
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/inference", b"sound") as answer:
        text = json.load(answer)["text"]
except urllib.error.HTTPError as error:
    told = {"error": f"it was answered with {error.code}", "hint": "see its journal"}
    print(json.dumps({**told, "evidence": ["no model"]}))
    sys.exit(1)
print("a line that is not for us")
print(json.dumps({"expected": "vulkan", "used": "cpu", "completion": text, "chat": "",
                  "tokens": 2, "seconds": 0.5, "refused": True}))
"""
MODEL = """\
import pathlib, sys
pathlib.Path(sys.argv[1]).write_bytes(b"ggml")
"""
PRYING = """\
import pathlib, socket, sys
said = [("unseen", "seen")[pathlib.Path(path).exists()] for path in ("/etc/hostname", "/var/log")]
try:
    pathlib.Path(__file__).with_name("new").write_text("written")
    said.append("written")
except OSError:
    said.append("refused")
said.append(str([name for _, name in socket.if_nameindex()]))
pathlib.Path(sys.argv[1]).write_text(" ".join(said))
"""
FILES = {
    "recipes/p.yaml": "base: debian-trixie\noverlays: [whisper-cpp]\n"
    "hardware: [{pci: '1002:7480', name: Radeon RX 7600 XT, target: gfx1102}]\n",
    "overlays/whisper-cpp/overlay.yaml": OVERLAY,
    f"overlays/whisper-cpp/files{UNIT}": SERVICE,
    "overlays/whisper-cpp/probes/boot": BOOT,
    "overlays/whisper-cpp/probes/transcribe.py": TRANSCRIBE,
    "overlays/whisper-cpp/probes/model.py": MODEL,
}
# What programs of the image say where there is no device.
GOOD: Mapping[str, Completed | str] = {
    "ldd -r": "",
    "/usr/bin/whisper-server --devices": "  CPU0: a processor\n",
    f"env {GUARD}": Completed(1, "", "no GPU"),
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with an overlay that brings whisper.cpp."""
    made = Project(make_project(tmp_path / "project"))
    made.write(FILES)
    return made


@pytest.fixture
def asked(project: Project) -> EngineUnderTest:
    """The engine as the boot test has it."""
    kind = load_engines(project.settings.find_overlays(), ("whisper-cpp",))["whisper.cpp"]
    assert kind.model.boot
    return EngineUnderTest(kind, kind.model.boot)


# --- the proof


def prove(
    recipe: Recipe, root: Path, *, answers: Mapping[str, Completed | str] = {}, without: str = ""
) -> list[Finding]:
    """What is found of an image of the recipe."""
    files: dict[str, Content] = {
        UNIT: SERVICE, PLUGIN: "", "/usr/bin/whisper-server": Program(), GUARD: Program(),
    }  # fmt: skip
    files.pop(without, None)
    subject = make_subject(
        make_tree(root, files),
        hardware=recipe.hardware,
        expectations=recipe.expectations,
        engines=engines_of(recipe.overlays),
        run=Sandbox({**GOOD, **answers}),
    )
    return list(prove_fallback(subject))


def test_it_is_proved_to_refuse_without_its_card(project: Project, tmp_path: Path) -> None:
    assert facts(prove(project.load(), tmp_path / "root")) == [
        "whisper.cpp: with the device vulkan; without it whisper-server.service refuses to start"
    ]


def test_a_backend_that_it_would_do_without_is_found(project: Project, tmp_path: Path) -> None:
    [found] = prove(project.load(), tmp_path / "root", without=PLUGIN)
    assert faults([found]) == ["whisper.cpp has no backend vulkan, and would ignore that silently"]
    assert found.hint == "install whisper-vulkan, or remove vulkan from whisper_backends"
    assert (found.evidence[0].path, found.evidence[0].said) == (
        "/usr/lib", "no */whisper/libggml-vulkan.so"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        (
            {"ldd -r": "libvulkan.so.1 => not found\n"},
            "the backend vulkan does not load, and whisper.cpp would skip it silently",
        ),
        (
            {"/usr/bin/whisper-server --devices": "  Vulkan0: llvmpipe\n"},
            "whisper.cpp lists the processor as a device although there is none",
        ),
        (
            {"/usr/bin/whisper-server --devices": Completed(1, "", "cannot")},
            "whisper-server does not run: cannot",
        ),
        (
            {f"env {GUARD}": "GPU0"},
            "whisper.cpp would compute on the processor and nobody would notice: "
            "whisper-server.service starts without the device",
        ),
    ],
)
def test_each_silent_fallback_is_found(
    project: Project, tmp_path: Path, answers: Mapping[str, Completed | str], what: str
) -> None:
    assert faults(prove(project.load(), tmp_path / "root", answers=answers)) == [what]


def test_an_image_whose_engine_nobody_describes_is_refused(
    project: Project, tmp_path: Path
) -> None:
    recipe = project.load()
    subject = make_subject(
        make_tree(tmp_path / "root", {}), expectations=recipe.expectations, engines={}
    )
    with pytest.raises(InputError, match=r"whisper\.cpp, which no overlay of this project"):
        list(prove_fallback(subject))


def test_what_describes_an_engine_is_no_input_of_a_layer(project: Project) -> None:
    def read() -> list[str]:
        recipe = project.load()
        steps = [config_step(overlay, 1).inputs() for overlay in recipe.overlays]
        return [digest_of([*map(dict, steps), dict(expects_of(recipe))])]

    before = read()
    project.write(
        {
            "overlays/whisper-cpp/probes/boot": f"{BOOT}# more\n",
            "overlays/whisper-cpp/probes/new": "#!/bin/sh\n",
            "overlays/whisper-cpp/overlay.yaml": OVERLAY.replace("[CPU]", "[CPU, BLAS]"),
        }
    )
    assert read() == before


# --- the boot test


@dataclass
class Here:
    """Runs scripts as a node does, here."""

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, script: str, *, stdin: bytes = b"", check: bool = True) -> Completed:
        env = {"TMPDIR": str(self.folder), "PATH": os.environ["PATH"], **self.env}
        return run(["sh", "-euc", script], env=env, stdin=stdin, check=check)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """A node's shell; nothing is left in its folder."""
    folder = tmp_path / "node"
    folder.mkdir()
    yield Here(folder)
    assert list(folder.iterdir()) == []


def test_it_answers(asked: EngineUnderTest, here: Here) -> None:
    with server({"/inference": {"text": "two words"}}) as port:
        here.env = {"WHISPER_PORT": str(port)}
        node = EngineNode("gate-1", "10.77.0.11", here)
        prepare(node, asked)
        found = infer(node, asked, 1)
    assert (found.completion, found.tokens, found.over) == ("two words", 2, ("gate-1",))
    assert (found.expected, found.used, found.degraded, found.refused) == (
        "vulkan", "cpu", True, True
    )  # fmt: skip


def test_it_says_why_it_does_not_answer(asked: EngineUnderTest, here: Here) -> None:
    with server({}) as port:
        here.env = {"WHISPER_PORT": str(port)}
        with pytest.raises(InferenceError) as caught:
            infer(EngineNode("gate-1", "", here), asked, 1)
    assert str(caught.value) == (
        "gate-1: it was answered with 404\n    no model\n  hint: see its journal"
    )


def test_a_node_that_is_lost_is_told(asked: EngineUnderTest) -> None:
    def lost(script: str, *, stdin: bytes = b"", check: bool = True) -> Completed:
        assert script
        assert stdin
        assert not check
        return Completed(255, "", "client_loop: send disconnect: Broken pipe")

    with pytest.raises(
        InferenceError, match=r"gate-1: lost the connection to the node(.|\n)*Broken pipe"
    ):
        infer(EngineNode("gate-1", "", lost), asked, 1)


def test_a_program_that_says_nonsense_is_named(asked: EngineUnderTest, here: Here) -> None:
    with server({"/inference": {"text": 7}}) as port:
        here.env = {"WHISPER_PORT": str(port)}
        with pytest.raises(
            InferenceError, match=r"the program of whisper\.cpp: its answer is damaged"
        ):
            infer(EngineNode("gate-1", "", here), asked, 1)


def test_it_does_not_compute_over_two_nodes(asked: EngineUnderTest, here: Here) -> None:
    nodes = (EngineNode("gate-1", "", here), EngineNode("gate-2", "", here))
    with pytest.raises(
        InferenceError, match=r"gate-1: whisper\.cpp cannot compute on two nodes together"
    ):
        infer_over(*nodes, asked, 1)


def test_an_engine_that_lends_is_given_it_back(project: Project, here: Here) -> None:
    folder = project.root / "overlays/whisper-cpp"
    text = OVERLAY.replace("  boot:\n", "  boot:\n    together: true\n")
    (folder / "overlay.yaml").write_text(text)
    (folder / "probes/boot").write_text(
        "#!/bin/sh\nset -eu\n"
        'echo "$*" >> "$LOG"\n'
        'case $1 in lend) echo \'{"port": 5}\' ;; *) echo \'{"error": "no"}\'; exit 1 ;; esac\n'
    )
    kind = load_engines({"w": folder}, ("w",))["whisper.cpp"]
    assert kind.model.boot
    log = project.root / "log"
    here.env = {"LOG": str(log)}
    nodes = (EngineNode("gate-1", "10.77.0.11", here), EngineNode("gate-2", "10.77.0.12", here))
    with pytest.raises(InferenceError, match="gate-1: no"):
        infer_over(*nodes, EngineUnderTest(kind, kind.model.boot), 1)
    lent = json.dumps({"port": 5})
    assert log.read_text().splitlines() == [
        "lend 60", f"ask 60 10.77.0.12 {lent}", f"take-back {lent}",
    ]  # fmt: skip


def test_the_disk_has_its_model(asked: EngineUnderTest, tmp_path: Path) -> None:
    tree, release, work = Tree(tmp_path / "tree"), ReleaseName("p", "1"), tmp_path / "work"
    work.mkdir()
    settings = tree.root(ReleaseName("p", "1")) / "etc/default/whisper-server"
    settings.parent.mkdir(parents=True)
    settings.write_text("WHISPER_MODEL=/models/w/base.bin\n")
    disk = make_disk(tree, release, (asked,), work)
    run(["debugfs", "-R", f"dump /w/base.bin {tmp_path}/out", disk or ""])
    assert (tmp_path / "out").read_bytes() == b"ggml"
    assert make_disk(tree, release, (), work) is None


def test_what_makes_its_model_sees_little_of_the_builder(
    asked: EngineUnderTest, tmp_path: Path
) -> None:
    program = asked.kind.program(asked.boot.model.program)
    program.write_text(PRYING)
    assert make_tiny_model(program, tmp_path).read_text() == "unseen unseen refused ['lo']"
    assert not program.with_name("new").exists()


def test_the_disk_has_the_model_for_everybody(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    model.write_bytes(b"GGUF" * 1000)
    model.chmod(0o600)
    disk, twin = tmp_path / "models.img", tmp_path / "twin.img"
    for path in (disk, twin):
        make_models_disk(path, {"llm/default.gguf": model, "other": model}, label="weights")
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


def test_an_engine_that_nobody_can_ask_is_told(project: Project) -> None:
    overlay = project.root / "overlays/whisper-cpp/overlay.yaml"
    overlay.write_text(OVERLAY.partition("  boot:\n")[0])
    [kind] = load_engines({"whisper-cpp": overlay.parent}, ("whisper-cpp",)).values()
    check = untestable_engine(kind)
    assert (check.title, check.outcome) == ("whisper-cpp: the engine answers", Outcome.SKIPPED)
    assert "whisper-cpp/overlay.yaml has no `engine: boot:`" in check.message
