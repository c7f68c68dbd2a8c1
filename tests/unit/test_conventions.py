# SPDX-License-Identifier: Apache-2.0
"""Conventions as programs: each guard runs here and on a planted fault."""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeGuard
from urllib.parse import urlsplit

import pytest

from imagebuilder.process import run

CHECKOUT = Path(__file__).parent.parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
# Folders that are not ours: what tools leave in a checkout.
NOT_OURS = frozenset(
    (".git", ".hypothesis", ".venv", "build", "dist", "__pycache__", "node_modules")
)
# A shell script that dracut sources or runs in an initrd follows dracut's rules instead.
DRACUT = "modules.d"
# They source files of the initrd and share variables with them: those cannot be followed.
SHARED_VARIABLES = ("--exclude=SC1091,SC2034,SC2154",)
# Words of one package manager, also as parts of names: `apt-get`, `deb822_fields`, `APT`.
# The words of each family, which only imagebuilder/families/NAME says.
OF_FAMILIES = {
    "apt": re.compile(r"(?i)(?<![a-z])(apt|dpkg|deb822|debs?|dsc)(?![a-z])"),
    "rpm": re.compile(r"(?i)(?<![a-z])(rpms?|dnf|yum|libsolv|solv|repomd|modulemd)(?![a-z])"),
}
# Who else may say them, and why.
NAMES_FAMILIES = {
    "imagebuilder/package_managers.py": "it lists the families",
    "imagebuilder/playbook/plugins/callback/imagebuilder_ask.py": "Ansible's modules have its name",
    "imagebuilder/boot/machine.py": "builders are Debian or Ubuntu: how they get a program",
    "imagebuilder/doctor/serve.py": "the same",
    "imagebuilder/serve/nfs.py": "the same",
    "imagebuilder/live/seed.py": "what runs in a live system, which no family makes",
    "imagebuilder/cli/host.py": "the option that installs what a family needs of a builder",
    "imagebuilder/doctor/host.py": "the same",
    "imagebuilder/process.py": "the same",
    "imagebuilder/proof/reading/scripts.py": "names of files that any package manager sets aside",
}
# Words that say nothing in the field, as parts of the names of modules, classes and functions.
METAPHORS = frozenset(
    ("again", "asked", "course", "door", "given", "held", "house", "knock", "look", "mend", "news",
     "night", "own", "room", "sole", "spent", "stand", "static", "walk", "weigh", "wire", "world")
)  # fmt: skip
FIELD_TERMS = frozenset(("walk", "walk_root"))
NAMED_IN_REPORTS = ("imagebuilder", "checks", "common")
# Split so that this file passes its own test.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")


def project_files(root: Path) -> Iterator[Path]:
    """Every file of ours, as text or not."""
    for top, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if is_ours(name))
        for path in (Path(top, name) for name in sorted(names) if is_ours(name)):
            if path.is_file() and not path.is_symlink():
                yield path


def is_ours(name: str) -> bool:
    """Whether a file or folder of that name is not left by a tool."""
    return name not in NOT_OURS and not name.endswith(("_cache", ".egg-info"))


@lru_cache(maxsize=1)  # of one root: the guards ask for the repository one after the other
def project_texts(root: Path) -> tuple[tuple[Path, str], ...]:
    """Every text file of ours: its path below `root` and its text."""
    contents = ((path, path.read_bytes()) for path in project_files(root))
    return tuple(
        (path.relative_to(root), content.decode(errors="replace"))
        for path, content in contents
        if b"\0" not in content
    )


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Every node of a Python text, which nobody may change."""
    return tuple(ast.walk(ast.parse(text)))


@pytest.fixture(scope="module", autouse=True)
def _nodes_are_forgotten() -> Iterator[None]:
    """A million objects would slow down what runs after this file."""
    yield
    nodes_of.cache_clear()


def modules(root: Path) -> Iterator[tuple[Path, str]]:
    """Every Python file of the product: its path below `root` and its text."""
    for path, text in project_texts(root):
        if path.suffix == ".py" and path.parts[0] in ("imagebuilder", "scripts"):
            yield path, text


def overlays_without_readme(root: Path) -> list[str]:
    """Every overlay explains itself."""
    return [
        overlay.parent.name
        for overlay in sorted(root.glob("overlays/*/overlay.yaml"))
        if not (overlay.parent / "README.md").is_file()
    ]


def long_files(root: Path) -> list[str]:
    """Files one can still read in one sitting."""
    counted = ((path, len(text.splitlines())) for path, text in modules(root))
    return [f"{path}: {lines} lines" for path, lines in counted if lines > MAX_FILE_LINES]


def long_functions(root: Path) -> list[str]:
    """Functions one can see at once; only `build()` may be a longer list of verbs."""
    return [
        f"{path}:{node.lineno}: {node.name}"
        for path, text in modules(root)
        for node in nodes_of(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
        and (path.name, node.name) != ("build.py", "build")
    ]


def programs_started_elsewhere(root: Path) -> list[str]:
    """process.run() starts every program."""
    found = []
    for path, text in modules(root):
        if path != Path("imagebuilder/process.py"):
            found += [f"{path}:{line}" for line in map(starts, nodes_of(text)) if line]
    return found


def modules_of_the_folder(root: Path) -> list[str]:
    """`python -m` finds modules in the working directory, which may belong to another user."""
    found = []
    for path, text in modules(root):
        for node in nodes_of(text) if path.parts[0] == "imagebuilder" else ():
            if isinstance(node, ast.List | ast.Tuple):
                words = [ast.unparse(each) for each in node.elts]
                after = itertools.pairwise(words)
                if ("sys.executable", "'-m'") in after:
                    found.append(f"{path}:{node.lineno}: say -P before -m")
    return found


def renamed_elsewhere(root: Path) -> list[str]:
    """Everything but files.py, and what works inside a root that is built, syncs what it names."""
    return [
        f"{path}:{line}"
        for path, text in modules(root)
        if path.parts[0] == "imagebuilder" and path.parts[1] not in ("files.py", "slim", "steps")
        for line in map(renames, nodes_of(text))
        if line
    ]


def renames(node: ast.AST) -> int:
    """The line of a node that gives a file or folder another name, else 0."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return 0
    called, owner = node.func.attr, node.func.value
    if isinstance(owner, ast.Name) and owner.id == "os":
        return node.lineno if called in ("rename", "replace", "renames") else 0
    if isinstance(owner, ast.Name) and owner.id == "shutil":
        return node.lineno if called == "move" else 0
    # str.replace() has two arguments, replace() of dates and dataclasses has names.
    alone = len(node.args) == 1 and not node.keywords
    return node.lineno if called in ("rename", "replace") and alone else 0


def globs_that_raise(root: Path) -> list[str]:
    """folders.py lists folders that go meanwhile; an image that is built stays as it is."""
    return [
        f"{path}:{line}"
        for path, text in modules(root)
        if path.parts[0] == "imagebuilder" and "inside" not in path.parts
        for line in map(raising_glob, nodes_of(text))
        if line
    ]


def raising_glob(node: ast.AST) -> int:
    """The line of a call of Path.rglob(), or of Path.glob() that lists several folders, else 0."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return 0
    if node.func.attr == "rglob":
        return node.lineno
    owner = ast.unparse(node.func.value).rpartition(".")[2]
    if node.func.attr != "glob" or owner == "root":
        return 0
    return node.lineno if re.search(r"[*?\]].*/[^'\"]", ast.unparse(node.args[0])) else 0


def starts(node: ast.AST) -> int:
    """The line on which this imports subprocess or starts a program without it, 0 for neither."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        names = [f"{node.value.id}.{node.attr}"]
    else:
        return 0
    starting = re.compile(r"(subprocess|pty|os\.(system|popen|posix_spawnp?|spawn[lv]p?e?))$")
    return node.lineno if any(map(starting.match, names)) else 0


def requests_elsewhere(root: Path) -> list[str]:
    """answers.py limits the whole time of an answer; a limit of requests is for each byte.

    deliver.py is a program of its own, which is ended after its time.
    """
    allowed = ("imagebuilder/answers.py", "imagebuilder/notify/deliver.py")
    sent = re.compile(r"\brequests\.(get|head|post|put|patch|delete|request|Session)\(|urlopen\(")
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in modules(root)
        if path.parts[0] == "imagebuilder" and os.fspath(path) not in allowed
        for number, line in enumerate(text.splitlines(), 1)
        if sent.search(line)
    ]


def class_names_used_twice(root: Path) -> list[str]:
    """A class is known by its name alone; Ansible finds those of its plugins by theirs."""
    places: dict[str, list[str]] = {}
    for path, text in modules(root):
        if path.parts[0] == "imagebuilder" and "plugins" not in path.parts:
            for node in nodes_of(text):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    return [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]


def package_managers_elsewhere(root: Path) -> list[str]:
    """Only its family knows a package manager; who else may name one is in NAMES_FAMILIES."""
    return [
        f"{path}:{number}"
        for path, text in modules(root)
        if path.parts[0] == "imagebuilder" and os.fspath(path) not in NAMES_FAMILIES
        for family, words in OF_FAMILIES.items()
        if path.parts[:3] != ("imagebuilder", "families", family)
        for number, line in enumerate(text.splitlines(), 1)
        if words.search(line)
    ]


def metaphors_in_names(root: Path) -> list[str]:
    """A name says what the thing is in the field's words; names of checks are kept in reports."""
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for path, text in modules(root):
        if path.parts[0] == "imagebuilder" and path.parts[:3] != NAMED_IN_REPORTS:
            named = [
                (node.name, node.lineno) for node in nodes_of(text) if isinstance(node, defined)
            ]
            kept = [(name, line) for name, line in named if name not in FIELD_TERMS]
            found += [
                f"{path}:{line}: {name}"
                for name, line in [(path.stem, 1), *kept]
                if has_metaphor(name)
            ]
    return found


def slow_patterns(root: Path) -> list[str]:
    r"""`^\s*` begins at every empty line and reads all that follow, in quadratic time: `^[ \t]*`.

    Quotes of any length are separated by proof/reading/texts.py, which has a limit.
    """
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in modules(root)
        if path.parts[0] == "imagebuilder"
        for number, line in enumerate(text.splitlines(), 1)
        if r"^\s*" in line
        or r"^\s+" in line
        or (path.parts[1] == "proof" and path.name != "texts.py" and "shlex.split" in line)
    ]


def has_metaphor(name: str) -> bool:
    """Whether a part of a name in snake case or camel case is such a word, or its plural."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
    return any(part in METAPHORS or part.removesuffix("s") in METAPHORS for part in parts)


def locks_taken_elsewhere(root: Path) -> list[str]:
    """Everything but locks.py takes its locks from there."""
    return [
        os.fspath(path)
        for path, text in modules(root)
        if path.parts[0] == "imagebuilder" and path.name != "locks.py" and "fcntl.flock" in text
    ]


def missing_licence_lines(root: Path) -> list[str]:
    """One SPDX line a Python file; what tests read and what `init` gives away have no author."""
    return [
        str(path)
        for path, text in project_texts(root)
        if path.suffix == ".py"
        and text.strip()
        and not {"cases", "skeleton"} & {*path.parts}
        and not re.match(r"(#!.*\n)?# SPDX-License-Identifier: Apache-2\.0\n", text)
    ]


def hints_without_verb(root: Path) -> list[str]:
    """A hint says what to do: `run imagebuilder gc to ...`, not `imagebuilder gc ...`."""
    return [
        f"{path}:{node.value.lineno}"
        for path, text in modules(root)
        for node in nodes_of(text)
        if is_hint(node) and ast.unparse(node.value).lstrip("f(\"'").startswith("imagebuilder ")
    ]


def is_hint(node: ast.AST) -> TypeGuard[ast.keyword | ast.Assign]:
    """Whether a node gives a text to a hint, as an argument or by a name."""
    if isinstance(node, ast.Assign):
        names = (target.id for target in node.targets if isinstance(target, ast.Name))
        return any(name.lower().endswith("hint") for name in names)
    return isinstance(node, ast.keyword) and node.arg == "hint"


def unfinished_business(root: Path) -> list[str]:
    """What is left is an issue, not a comment."""
    return [
        f"{path}:{number}"
        for path, text in project_texts(root)
        for number, line in enumerate(text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]


def shell_scripts(root: Path) -> Iterator[tuple[Path, str]]:
    """Every file that says it is a shell script."""
    for path, text in project_texts(root):
        if re.match(r"#! ?/(usr/)?bin/(env )?(ba|da|z|k)?sh\b", text):
            yield path, text


def careless_shell(root: Path) -> list[str]:
    """POSIX sh that stops at the first error; .ci/run alone is bash."""
    found = []
    for path, text in shell_scripts(root):
        if DRACUT in path.parts:
            continue
        if path == Path(".ci/run"):
            first, setting = "#!/bin/bash", "set -euo pipefail"
        else:
            first, setting = "#!/bin/sh", "set -eu"
        lines = text.splitlines()
        if lines[0] != first or setting not in lines:
            found.append(f"{path}: wants {first} and {setting}")
    return found


def shellcheck_findings(root: Path) -> list[str]:
    """What shellcheck knows to be wrong; it cannot read templates."""
    scripts = [path for path, _ in shell_scripts(root) if path.suffix != ".j2"]
    sourced = [path for path in scripts if DRACUT in path.parts]
    others = [path for path in scripts if DRACUT not in path.parts]
    return [*run_shellcheck(root, others), *run_shellcheck(root, sourced, *SHARED_VARIABLES)]


def run_shellcheck(root: Path, scripts: Sequence[Path], *options: str) -> list[str]:
    """The findings of shellcheck, one line each."""
    if not scripts:
        return []
    done = run(["shellcheck", "--format=gcc", *options, "--", *scripts], cwd=root, check=False)
    return (done.stdout + done.stderr).splitlines()


def mirror_hosts(apt_root: Path) -> set[str]:
    """The hosts of the Debian archives in a builder's apt sources."""
    listed = (apt_root / "sources.list", *apt_root.glob("sources.list.d/*"))
    text = "\n".join(path.read_text(errors="replace") for path in listed if path.is_file())
    addresses = re.findall(r"(?:[a-z+]+)://[^\s\]]+", text)
    parts = [urlsplit(address) for address in addresses]
    return {
        part.hostname
        for part in parts
        if part.hostname and re.search(r"/debian(-security)?(/|$)", part.path)
    }


def named_mirrors(root: Path, apt_root: Path) -> list[str]:
    """Mirrors come from the builder's own configuration: nothing of ours names one."""
    hosts = mirror_hosts(apt_root)
    return [
        f"{path}: {host}" for path, text in project_texts(root) for host in hosts if host in text
    ]


def files_of_the_clone(root: Path) -> list[str]:
    """No message names a file that an installed program does not have."""
    return [
        f"{path}:{node.lineno}"
        for path, text in modules(root)
        if path.parts[0] == "imagebuilder" and path.name != "reference.py"
        for node in without_docstrings(nodes_of(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"docs/[a-z-]+\.md|scripts/[a-z]+-setup|\.venv/", node.value)
        and not re.search(r"--(clone|dev|tests)$", node.value)
    ]


def without_docstrings(found: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The same without the docstrings of modules, classes and functions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in found
        if isinstance(node, documented)
        and ast.get_docstring(node) is not None
        and isinstance(node.body[0], ast.Expr)
    }
    return (node for node in found if id(node) not in docstrings)


def links_of_data(root: Path) -> list[str]:
    """A wheel holds no symlinks: what a clone reads as one would be a file of another digest."""
    return [
        os.fspath(path.relative_to(root))
        for folder in ("overlays", "pxe", "recipes")
        for path in sorted((root / folder).rglob("*"))
        if path.is_symlink()
    ]


def targets_without_help(root: Path) -> list[str]:
    """`make help` knows every target a person may type."""
    text = (root / "Makefile").read_text()
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", text, re.MULTILINE)
    listed = set(phony[1].replace("\\\n", " ").split() if phony else ())
    targets = set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))
    shown = run(["make", "--no-print-directory", "-C", root, "help"]).stdout
    internal = {"bytecode", "host", "host-dev", "host-tests", "profile"}
    return sorted(
        [f"{name}: not phony" for name in targets - listed]
        + [f"{name}: no help" for name in targets - internal if f" make {name} " not in shown]
    )


def other_tests_in_ci(root: Path) -> list[str]:
    """Continuous integration runs what README.md tells people to run."""
    told = re.findall(r"^    (make test)\b", (root / "README.md").read_text(), re.MULTILINE)
    ran = re.findall(r"^make .*$", (root / ".ci/run").read_text(), re.MULTILINE)
    return [] if ran == told[:1] else [f"README.md tells {told}, .ci/run runs {ran}"]


GUARDS = (
    overlays_without_readme,
    long_files,
    long_functions,
    programs_started_elsewhere,
    modules_of_the_folder,
    renamed_elsewhere,
    globs_that_raise,
    requests_elsewhere,
    class_names_used_twice,
    package_managers_elsewhere,
    metaphors_in_names,
    slow_patterns,
    locks_taken_elsewhere,
    missing_licence_lines,
    hints_without_verb,
    unfinished_business,
    careless_shell,
    shellcheck_findings,
    files_of_the_clone,
    links_of_data,
    targets_without_help,
    other_tests_in_ci,
)
GOOD_SCRIPT = "#!/bin/sh\nset -eu\necho ready\n"
# guard, file, its content: each breaks the one convention.
PLANTED = (
    (overlays_without_readme, "overlays/ssh/overlay.yaml", "description: remote login\n"),
    (long_files, "imagebuilder/a.py", "\n" * 401),
    (long_functions, "imagebuilder/a.py", "def f():\n" + "    g()\n" * 60),
    (programs_started_elsewhere, "imagebuilder/a.py", "from subprocess import run\n"),
    (programs_started_elsewhere, "imagebuilder/a.py", "def f():\n    import subprocess\n"),
    (programs_started_elsewhere, "imagebuilder/a.py", "import os\nos.system('ls')\n"),
    (modules_of_the_folder, "imagebuilder/a.py", "PIP = (sys.executable, '-m', 'pip')\n"),
    (modules_of_the_folder, "imagebuilder/a.py", "run([*a, sys.executable, '-m', *words])\n"),
    (renamed_elsewhere, "imagebuilder/a.py", "new.rename(place)\n"),
    (renamed_elsewhere, "imagebuilder/a.py", "new.replace(place)\n"),
    (renamed_elsewhere, "imagebuilder/a.py", "os.replace(new, place)\n"),
    (renamed_elsewhere, "imagebuilder/a.py", "shutil.move(new, place)\n"),
    (globs_that_raise, "imagebuilder/a.py", "for path in folder.rglob('*.json'): ...\n"),
    (globs_that_raise, "imagebuilder/a.py", "found = sorted((state / 'work').glob(f'*/{KEPT}'))\n"),
    (requests_elsewhere, "imagebuilder/a.py", "answer = requests.get(url, timeout=30)\n"),
    (class_names_used_twice, "imagebuilder/a.py", "class A: ...\nclass B: ...\nclass A: ...\n"),
    (package_managers_elsewhere, "imagebuilder/a.py", "INFO = '/var/lib/dpkg/info'\n"),
    (package_managers_elsewhere, "imagebuilder/families/a.py", "# as apt has it\n"),
    (package_managers_elsewhere, "imagebuilder/families/rpm/a.py", "# as apt has it\n"),
    (package_managers_elsewhere, "imagebuilder/families/apt/a.py", "# as dnf has it\n"),
    (package_managers_elsewhere, "imagebuilder/proof/a.py", "DATABASE = '/var/lib/rpm'\n"),
    (package_managers_elsewhere, "imagebuilder/a.py", "def f(debs: Path): ...\n"),
    (package_managers_elsewhere, "imagebuilder/a.py", "from x import parse_deb822\n"),
    (slow_patterns, "imagebuilder/a.py", 'A = r"^\\s*a="\n'),
    (slow_patterns, "imagebuilder/a.py", 'A = r"^\\s+a="\n'),
    (slow_patterns, "imagebuilder/proof/a.py", "import shlex\nshlex.split(text)\n"),
    (metaphors_in_names, "imagebuilder/door.py", "import os\n"),
    (metaphors_in_names, "imagebuilder/a.py", "class NodeNews: ...\n"),
    (metaphors_in_names, "imagebuilder/a.py", "class A:\n    async def look_at_nodes(self): ...\n"),
    (metaphors_in_names, "imagebuilder/a.py", "def nights_of(): ...\n"),
    (locks_taken_elsewhere, "imagebuilder/a.py", "fcntl.flock(stream, fcntl.LOCK_EX)\n"),
    (missing_licence_lines, "imagebuilder/a.py", "import os\n"),
    (hints_without_verb, "imagebuilder/a.py", "E('x', hint=f'imagebuilder lock {name}')\n"),
    (hints_without_verb, "imagebuilder/a.py", "hint = ('imagebuilder gc '\n'makes room')\n"),
    (unfinished_business, "docs/a.md", "We shall see. TO" + "DO: look\n"),
    (careless_shell, "scripts/a", "#!/bin/sh\necho done\n"),
    (careless_shell, "overlays/ssh/scripts/10-a", "#!/bin/bash\nset -eu\n"),
    (careless_shell, ".ci/run", "#!/bin/bash\nset -eu\n"),
    (shellcheck_findings, "scripts/a", "#!/bin/sh\nset -eu\ncat $1\n"),
    (shellcheck_findings, "overlays/a/files/modules.d/1a/a.sh", "#!/bin/sh\ncat $1\n"),
    (files_of_the_clone, "imagebuilder/a.py", "HINT = 'see docs/nodes.md'\n"),
    (files_of_the_clone, "imagebuilder/a.py", "HINT = f'{a}scripts/host-setup {b}'\n"),
    (targets_without_help, "Makefile", "help:\n\t@echo make\n"),
    (other_tests_in_ci, ".ci/run", "make check\n"),
)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_the_repository_keeps_its_conventions(guard: Callable[[Path], list[str]]) -> None:
    assert guard(CHECKOUT) == []


@pytest.mark.parametrize(("guard", "file", "content"), PLANTED)
def test_a_planted_fault_is_found(
    tmp_path: Path, guard: Callable[[Path], list[str]], file: str, content: str
) -> None:
    (tmp_path / "README.md").write_text("Run\n\n    make test\n")
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert guard(tmp_path) != []


def test_every_guard_has_a_planted_fault() -> None:
    assert {guard for guard, _, _ in PLANTED} | {links_of_data} == set(GUARDS)


def test_a_symlink_among_the_data_is_found(tmp_path: Path) -> None:
    (tmp_path / "overlays/a").mkdir(parents=True)
    (tmp_path / "overlays/a/b").symlink_to("c")
    assert links_of_data(tmp_path) == ["overlays/a/b"]


def test_nothing_names_a_mirror_of_this_builder() -> None:
    assert named_mirrors(CHECKOUT, Path("/etc/apt")) == []


def test_a_named_mirror_is_found(tmp_path: Path) -> None:
    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)
    (apt / "sources.list").write_text("deb [signed-by=/k] http://mirror.example/debian x main\n")
    (apt / "sources.list.d/a.sources").write_text(
        "URIs: https://user@near.example:8080/debian-security/\n"
    )
    (apt / "sources.list.d/b.list").write_text("deb https://vendor.example/gpu x main\n")
    project = tmp_path / "project"
    project.mkdir()
    for host in ("mirror.example", "near.example", "vendor.example"):
        (project / host).write_text(f"see {host}\n")
    assert mirror_hosts(apt) == {"mirror.example", "near.example"}
    assert [line.rpartition(" ")[2] for line in named_mirrors(project, apt)] == [
        "mirror.example",
        "near.example",
    ]


def test_guards_leave_good_files_alone(tmp_path: Path) -> None:
    dracut = tmp_path / "overlays/netboot/files/usr/lib/dracut/modules.d/90x/module-setup.sh"
    dracut.parent.mkdir(parents=True)
    dracut.write_text("#!/bin/bash\ncheck() {\n    return 0\n}\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/a").write_text(GOOD_SCRIPT)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/b.py").write_text("import subprocess\n")
    for guard in (careless_shell, shellcheck_findings, missing_licence_lines, long_functions):
        assert guard(tmp_path) == []
