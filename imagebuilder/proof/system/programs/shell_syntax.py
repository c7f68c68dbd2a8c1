# SPDX-License-Identifier: Apache-2.0
"""Whether the image's own shells understand a site's scripts: `sh -n` parses, and runs nothing.

A shell reads a script command by command: what stands before a mistake has run when it ends, and
what stands behind an `exit` is never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.process import Completed
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.unanswered import prove_answered

# dash: `NAME: 5: Syntax error: ...`; bash: `NAME: line 5: syntax error: ...`.
COMPLAINT = re.compile(r": (?:line )?(?P<line>\d+): (?P<what>(?:[Ss]yntax error|unexpected EOF).*)")
# The ends of a script that has something else behind it, such as an archive.
ENDS = re.compile(r"^(?:exit|exec)\b.*\n", re.MULTILINE)
MOST_ENDS = 4
# bash understands patterns such as !(a|b) once this is set, which happens when the script runs.
EXTGLOB = "extglob"
MOST_ARGUMENT = 100 << 10  # execve(2): MAX_ARG_STRLEN is 128 KiB


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


def prove_shell_syntax(subject: Subject, texts: Iterable[ShellText]) -> Iterator[Finding]:
    """Faults of scripts that end at a mistake, warnings if who starts them goes on."""
    for text in texts:
        # What is longer, or cannot be an argument, is not what a person writes.
        if "\0" in text.text or len(text.text.encode(errors="surrogateescape")) > MOST_ARGUMENT:
            continue
        done = parse(subject, text, text.text)
        unread = f"whether {text.shell} understands {text.said}"
        yield from prove_answered(SAY, done, unread, Evidence(text.path))
        match = COMPLAINT.search(done.stderr) if done.status else None
        if match is None or ends_before(subject, text):
            continue
        say = SAY.fault if text.matters else SAY.warning
        yield say(
            f"{text.said} ends with an error at line {match['line']}: {match['what']}",
            Evidence(text.path, said=f"line {match['line']}"),
            hint=f"correct it; `{text.shell} -n {text.path}` in the image shows the error",
        )


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
