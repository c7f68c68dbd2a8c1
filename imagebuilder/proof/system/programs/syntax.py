# SPDX-License-Identifier: Apache-2.0
"""Scripts of a site, as the image's own interpreters see them.  Nothing of a script is run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.process import Completed
from imagebuilder.proof.say import prove_answered
from imagebuilder.proof.subject import Subject

# dash: `NAME: 5: Syntax error: ...`; bash: `NAME: line 5: syntax error: ...`.
COMPLAINT = re.compile(r": (?:line )?(?P<line>\d+): (?P<what>(?:[Ss]yntax error|unexpected EOF).*)")
# The ends of a script that has something else behind it, such as an archive.
ENDS = re.compile(r"^(?:exit|exec)\b.*\n", re.MULTILINE)
MOST_ENDS = 4
# bash understands patterns such as !(a|b) once this is set, which happens when the script runs.
EXTGLOB = "extglob"
MOST_ARGUMENT = 100 << 10  # execve(2): MAX_ARG_STRLEN is 128 KiB
# For each script a line: [[line, module] ...], or [[line, "", message]] if it is no Python.  A
# module that not every version has is imported in a `try`.  Who changes sys.path may have more, and
# a module beside the script may change it.
CHECK = """
import ast, importlib.util, json, os, sys

def missing(tree):
    for node in tree.body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        for name in names:
            top = name.partition(".")[0]
            if top in sys.modules:
                continue
            spec = importlib.util.find_spec(top)
            if spec is None:
                yield [node.lineno, top]
            elif any(p.startswith(sys.path[0]) for p in (spec.origin or "", *(
                     spec.submodule_search_locations or []))):
                return

known = sys.path[1:]
for path, text in json.loads(sys.argv[1]):
    data = text or open(path, "rb").read()
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError) as error:
        found = [[getattr(error, "lineno", 0) or 0, "", str(getattr(error, "msg", error))]]
    else:
        sys.path[:] = [os.path.dirname(os.path.realpath(path)), *known]
        path_changes = any(isinstance(n, ast.Attribute) and n.attr == "path"
                           and isinstance(n.value, ast.Name) and n.value.id in ("sys", "site")
                           for n in ast.walk(tree))
        found = [] if path_changes else list(missing(tree))
    print(json.dumps(found))
"""
ANSWER = TypeAdapter(list[tuple[int, str] | tuple[int, str, str]])


@dataclass(frozen=True)
class ShellText:
    """The text that a shell, with its path in the image, reads from the file `path`.

    `said` names it in a message.  `matters`: who starts it fails with it.
    """

    shell: str
    text: str
    path: str
    said: str
    matters: bool


def prove_shell_syntax(subject: Subject, texts: Iterable[ShellText]) -> Findings:
    """Faults of scripts that end at a mistake, warnings if who starts them goes on: `sh -n` parses.

    A shell reads a script command by command: what stands before a mistake has run when it ends,
    and what stands behind an `exit` is never read.
    """
    for text in texts:
        # What is longer, or cannot be an argument, is not what a person writes.
        if "\0" in text.text or len(text.text.encode(errors="surrogateescape")) > MOST_ARGUMENT:
            continue
        done = parse(subject, text, text.text)
        unread = f"whether {text.shell} understands {text.said}"
        yield from prove_answered(done, unread, Evidence(text.path))
        match = COMPLAINT.search(done.stderr) if done.status else None
        if match is None or ends_before(subject, text):
            continue
        say = fault if text.matters else warning
        what = f"{text.said} ends with an error at line {match['line']}: {match['what']}"
        hint = f"correct it; `{text.shell} -n {text.path}` in the image shows the error"
        yield say(what, Evidence(text.path, said=f"line {match['line']}"), hint=hint)


def parse(subject: Subject, text: ShellText, script: str) -> Completed:
    """What the shell says of `script`, which it does not run."""
    patterns = ("-O", EXTGLOB) if EXTGLOB in script and text.shell.endswith("bash") else ()
    return subject.run([text.shell, "-n", *patterns, "-c", script])


def ends_before(subject: Subject, text: ShellText) -> bool:
    """Whether a correct part of the script ends it, so that the shell never reads the rest."""
    ends = [match.end() for match in ENDS.finditer(text.text)][:MOST_ENDS]
    return any(
        end < len(text.text) and not parse(subject, text, text.text[:end]).status for end in ends
    )


@dataclass(frozen=True)
class PythonScript:
    """A script, or the text that an interpreter gets; `said` names it in a message.

    `interpreter` are the words of its start up to the script.  `matters`: who starts it fails with
    it.
    """

    path: str
    text: str
    said: str
    interpreter: tuple[str, ...]
    python_path: str
    matters: bool


def prove_python_scripts(subject: Subject, scripts: Iterable[PythonScript]) -> Findings:
    """Faults of scripts that their interpreter does not understand, or whose imports it lacks.

    Scripts move from one release to the next, and modules do not: distutils left Python with 3.12.
    """
    groups: dict[tuple[tuple[str, ...], str], list[PythonScript]] = {}
    for script in scripts:
        groups.setdefault((script.interpreter, script.python_path), []).append(script)
    for (interpreter, python_path), group in groups.items():
        variables = [f"PYTHONPATH={python_path}"] if python_path else []
        words = ["env", *variables, *interpreter, "-W", "ignore", "-c", CHECK]
        for some in batches(group):
            asked = json.dumps([(script.path, script.text) for script in some])
            done = subject.run([*words, asked])
            unread = f"whether Python understands {some[0].said}"
            yield from prove_answered(done, unread, Evidence(some[0].path))
            for script, answer in zip(some, done.stdout.splitlines(), strict=False):
                yield from prove_answer(script, answer)


def batches(scripts: Iterable[PythonScript]) -> Iterator[list[PythonScript]]:
    """The scripts in parts that fit into one argument; a text that does not is left out."""
    batch, size = list[PythonScript](), 0
    for script in scripts:
        needs = len(json.dumps((script.path, script.text))) + 2
        if size + needs > MOST_ARGUMENT and batch:
            yield batch
            batch, size = [], 0
        if needs <= MOST_ARGUMENT:
            batch.append(script)
            size += needs
    if batch:
        yield batch


def prove_answer(script: PythonScript, answer: str) -> Findings:
    try:
        found = ANSWER.validate_json(answer)
    except ValidationError:
        return
    say = fault if script.matters else warning
    for line, module, *message in found:
        evidence = Evidence(script.path, said=f"line {line}")
        if message:
            what = f"{script.said} cannot run: line {line} is not valid for "
            what += f"{script.interpreter[0]} ({message[0]})"
            yield say(what, evidence, hint="correct it for the Python of the image")
        else:
            what = f"{script.said} ends at line {line}: {script.interpreter[0]} has no module "
            what += module
            yield say(
                what,
                evidence,
                hint=f"install the package that has it, or catch the ImportError of {module}",
            )
