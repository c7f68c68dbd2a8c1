# SPDX-License-Identifier: Apache-2.0
"""What people copy: the workflow for their CI is one, and commands in it and in the docs exist."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.core import TyperGroup

from imagebuilder.cli.rollout import RolloutGroup
from imagebuilder.recipe.variant import find_variant
from imagebuilder.settings import Settings
from tests.commands import load_program

CHECKOUT = Path(__file__).parents[2]
WORKFLOW = (CHECKOUT / "docs/ci/github-actions.yml").read_text()
PAGES = ("*.md", "docs/*.md", "overlays/*/README.md")
# Keys of GitHub's workflow syntax, as far as the file uses them; what must be there has a star.
TOP = {"name*", "on*", "permissions*", "concurrency", "jobs*"}
JOB = {"name", "runs-on*", "timeout-minutes*", "strategy", "env", "steps*"}
STEP = {"name", "if", "uses", "with", "run"}
EVENTS = {"push", "schedule", "workflow_dispatch"}
CRON = re.compile(r"\d{1,2} \d{1,2}( [\d*/,-]+){3}")
ACTION = re.compile(r"actions/[a-z-]+@v\d+")
OTHERS = {"sudo", "echo"}
EXPRESSION = re.compile(r"\$\{\{ [^}]+ \}\}")
YAML_BEGINS = re.compile(r" {4}(?:- name: |[a-z-]+:(?: [\[{|~\"'/]|\n| [\w./-]+\n))")
# The value of an option does not matter here, but that it is one word.
VALUE = "generic"
# What takes names of profiles, or of images or releases, which begin with one.
OF_PROFILES = {"profile", "profiles", "image", "release", "old", "new"}
SHIPPED = Settings(CHECKOUT, CHECKOUT / "state", CHECKOUT / "cache", CHECKOUT / "site.yaml")
NEW = {path.stem for path in (CHECKOUT / "imagebuilder/skeleton/recipes").glob("*.yaml")}
# What follows the name in sentences.
PROSE = {
    "are", "boot", "builds", "does", "holds", "is", "itself", "needs", "over", "reads", "that",
    "there", "through", "what", "which",
}  # fmt: skip


def workflow_faults(text: str) -> list[str]:
    """What is wrong with a workflow: its shape, its expressions, its commands."""
    value = YAML(typ="safe").load(text)
    found = [*key_faults("workflow", value, TOP), *event_faults(value.get("on", {}))]
    for name, job in value.get("jobs", {}).items():
        found += key_faults(name, job, JOB)
        ways = job.get("strategy", {}).get("matrix", {}).get("include", [])
        for step in job.get("steps", []):
            found += step_faults(step)
        for key in set(re.findall(r"\$\{\{ matrix\.([a-z]+) \}\}", text)):
            found += [f"{name}: a way has no {key}" for way in ways if key not in way]
    return found


def key_faults(where: str, value: Mapping[str, object], known: set[str]) -> list[str]:
    """Keys that there are not, and those that are missing."""
    names = {key.rstrip("*") for key in known}
    wanted = {key.rstrip("*") for key in known if key.endswith("*")}
    return [f"{where}: unknown {key}" for key in value.keys() - names] + [
        f"{where}: no {key}" for key in wanted - value.keys()
    ]


def event_faults(events: Mapping[str, list[Mapping[str, str]]]) -> list[str]:
    """It runs on a push and every night."""
    if events.keys() != EVENTS:
        return [f"on: {', '.join(events)}"]
    times = [entry["cron"] for entry in events["schedule"]]
    return [f"cron: {time}" for time in times if not CRON.fullmatch(time)]


def step_faults(step: Mapping[str, str]) -> list[str]:
    """An action of a known version, or commands that exist."""
    found = key_faults("step", step, STEP)
    if ("uses" in step) is ("run" in step):
        found.append("step: uses or run")
    if "uses" in step and not ACTION.fullmatch(step["uses"]):
        found.append(f"action: {step['uses']}")
    for line in step.get("run", "").splitlines():
        found += command_faults(EXPRESSION.sub(VALUE, line))
    return found


def command_faults(line: str) -> list[str]:
    """What is wrong with a line of shell: programs, make targets, our commands and options."""
    words = shlex.split(line, comments=True)
    if "--" in words:  # what follows is a command of a node's
        words = words[: words.index("--")]
    while words and (words[0] in ("sudo", "&&") or "=" in words[0]):
        words.pop(0)
    if not words:
        return []
    if "&&" in words:
        cut = words.index("&&")
        return [*command_faults(shlex.join(words[:cut])), *command_faults(shlex.join(words[cut:]))]
    if words[0] == "make":
        return make_faults(words[1:])
    if words[0].startswith("scripts/"):
        return [] if (CHECKOUT / words[0]).is_file() else [f"script: {words[0]}"]
    if words[0].rpartition("/")[2] == "imagebuilder":
        return option_faults(words[1:])
    return [] if words[0] in OTHERS or line.startswith("sudo ") else [f"program: {words[0]}"]


def make_faults(words: list[str]) -> list[str]:
    """Targets that there are, and of `smoke` options of `imagebuilder test`."""
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    found = [f"target: {word}" for word in words if "=" not in word and word not in targets]
    for word in words:
        name, _, value = word.partition("=")
        if name == "OPTIONS":
            found += option_faults(["test", VALUE, *shlex.split(value)])
        if name == "PROFILE":
            found += profile_faults(value)
    return found


def option_faults(words: list[str]) -> list[str]:
    """Commands and options that imagebuilder does not have, and profiles that do not ship."""
    command: Any = load_program()
    path = ["imagebuilder"]
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        if isinstance(command, RolloutGroup) and words[0] not in command.commands:
            words = [command.usual, *words]
        if words[0] not in command.commands:
            return [f"{' '.join(path)}: no {words[0]}"]
        path.append(words[0])
        command = command.commands[words[0]]
        words = words[1:]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    found = [f"{' '.join(path)}: no {word}" for word in given if word not in {*known, "--help"}]
    if found or isinstance(command, TyperGroup):
        return found
    values = command.make_context(path[-1], list(words), resilient_parsing=True).params
    named = [values[name] for name in OF_PROFILES & values.keys() if values[name]]
    listed = [name for each in named for name in ([each] if isinstance(each, str) else each)]
    return [fault for name in listed for fault in profile_faults(name)]


def profile_faults(name: str) -> list[str]:
    """A profile, an image or a release whose profile neither ships nor is that of a new project.

    Words in capitals stand for names.
    """
    profile = re.split("[@/]", name)[0]
    known = re.search("[A-Z]", profile) or profile in NEW or find_variant(profile, SHIPPED)
    return [] if known else [f"profile: {profile}"]


def documented(text: str) -> Iterator[str]:
    """The command lines of a page: what is indented and begins with one of our programs."""
    for line in text.replace("\\\n", " ").splitlines():
        if re.match(r"    +(sudo )?(imagebuilder|make|scripts/\S+)( |$)", line):
            yield re.sub(r"  +#.*|\[.*\]|…", "", line.strip())
    for line in re.findall(r"`(imagebuilder [a-z][^`]*)`", text):
        yield re.sub(r"\[.*\]|…|\.\.\.", "", " ".join(line.split()))


def mentioned(source: str) -> Iterator[str]:
    """The commands, with the options that follow at once, in the texts of a module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "X"
            for part in parts
        )
        for found in re.finditer(r"(?<![\w/.-])imagebuilder [a-z]+( --?[a-z][a-z-]*)*", text):
            if found[0].split()[1] not in PROSE:
                yield found[0]


def page_faults(text: str) -> dict[str, list[str]]:
    """What is wrong with the command lines of a page, and with how they are run."""
    found = {line: command_faults(line) for line in documented(text)}
    for line in re.findall(r"^ +(?:sudo (?:\S*/)?|\.venv/bin/)imagebuilder .*", text, re.MULTILINE):
        found[line] = ["it is on the path, and runs itself with sudo"]
    return {line: faults for line, faults in found.items() if faults}


def test_the_workflow_is_one_and_its_commands_exist() -> None:
    assert workflow_faults(WORKFLOW) == []


def test_it_says_where_machines_run_and_keeps_the_report() -> None:
    value = YAML(typ="safe").load(WORKFLOW)
    (job,) = value["jobs"].values()
    assert job["runs-on"] == "ubuntu-24.04"
    ways = {(way["firmware"], way["root"]) for way in job["strategy"]["matrix"]["include"]}
    assert {("uefi", "nfs"), ("bios", "http")} <= ways
    runs = "\n".join(step.get("run", "") for step in job["steps"])
    assert "/etc/udev/rules.d/" in runs
    assert 'MODE="0666"' in runs
    (kept,) = (step for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
    assert kept["if"] == "always()"
    for file in kept["with"]["path"].split():
        assert file in runs


PLANTED: dict[str, Callable[[str], str]] = {
    "a target": lambda text: text.replace("make smoke", "make smokes"),
    "an option": lambda text: text.replace("--junit report.xml", "--junits report.xml"),
    "a command": lambda text: text.replace("imagebuilder lock", "imagebuilder locks"),
    "a program": lambda text: text.replace("make venv", "mkae venv"),
    "a time": lambda text: text.replace("23 2 * * *", "nightly"),
    "an event": lambda text: text.replace("  push:", "  pushed:"),
    "an action": lambda text: text.replace("checkout@v4", "checkout"),
    "a key": lambda text: text.replace("timeout-minutes:", "timeout:"),
    "a step": lambda text: text.replace("        if: always()", "        run: make venv"),
    "a way": lambda text: text.replace("            root: http\n", ""),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(plant: Callable[[str], str]) -> None:
    assert plant(WORKFLOW) != WORKFLOW
    assert set(workflow_faults(plant(WORKFLOW))) - set(workflow_faults(WORKFLOW))


def test_commands_of_the_docs_exist() -> None:
    pages = {path: path.read_text() for glob in PAGES for path in CHECKOUT.glob(glob)}
    assert sum(len(list(documented(text))) for text in pages.values()) > 100
    assert {path: faults for path, text in pages.items() if (faults := page_faults(text))} == {}


def test_yaml_in_the_docs_is_yaml() -> None:
    """A paragraph that was wrapped again as prose is no YAML any more."""
    pages = {path: path.read_text() for glob in PAGES for path in CHECKOUT.glob(glob)}
    found = [(path, one) for path, text in pages.items() for one in yaml_paragraphs(text)]
    assert len(found) > 30
    for path, one in found:
        assert isinstance(YAML(typ="safe").load(one), dict | list), (path, one)


def yaml_paragraphs(text: str) -> Iterator[str]:
    """Indented paragraphs that begin as YAML of ours does, apart from what programs print."""
    for one in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE):
        if YAML_BEGINS.match(one) and not one.startswith("    error:"):
            yield textwrap.dedent(one)


def test_commands_in_messages_exist() -> None:
    modules = sorted((CHECKOUT / "imagebuilder").rglob("*.py"))
    lines = {path: list(mentioned(path.read_text())) for path in modules}
    assert sum(map(len, lines.values())) > 100
    assert {
        (path.name, line): faults
        for path, found in lines.items()
        for line in found
        if (faults := command_faults(line))
    } == {}


@pytest.mark.parametrize(
    "source",
    [
        'raise HostError("no", hint="imagebuilder setupp installs it")',
        'hint = f"imagebuilder fsck --tree --repare puts {what} back"',
        '"""Made by imagebuilder pubish."""',
    ],
)
def test_a_message_with_a_command_that_does_not_exist_is_found(source: str) -> None:
    assert [command_faults(line) for line in mentioned(source)] != [[]]
    assert list(mentioned(source)) != []


@pytest.mark.parametrize(
    "line",
    [
        "imagebuilder publich rx7600xt",
        "imagebuilder nodes lst",
        "imagebuilder publish rx7600xt --too ssh://nuc/srv/netboot",
        "make imge PROFILE=minimal",
        "sudo scripts/fault --static",
        "sudo .venv/bin/imagebuilder images",
        "sudo imagebuilder images",
        "imagebuilder build rx7600",
        "imagebuilder show minimal.debian-wheezy",
        "imagebuilder promote rx7600@VERSION",
        "imagebuilder diff rx7600xt/stable rx7600/candidate",
        "imagebuilder nightly generic rx7600",
        "imagebuilder nodes add node0 --mac 02:00:00:00:00:01 --profile minimall",
        "make image PROFILE=rx7600",
    ],
)
def test_a_page_with_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert page_faults(f"Type\n\n    {line}    # why\n") != {}
