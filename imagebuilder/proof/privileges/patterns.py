# SPDX-License-Identifier: Apache-2.0
"""Wildcards in the arguments of sudoers(5): they stand for slashes and blanks too."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.privileges.sudo import SUDO, read_sudoers
from imagebuilder.proof.say import Say
from imagebuilder.proof.subject import Subject

SAY = Say(Question.PRIVILEGES)
MOST_LINE = 4096
# A command with a wildcard in a word behind it; `^...$` is a regular expression.
COMMAND = re.compile(
    r"(?<![^\s,:=!])(?P<program>/[^\s,:=*?]+)[ \t]+(?P<words>[^,^*?\[]*(?<!\\)[*?\[][^,]*)"
)


def prove_patterns(subject: Subject) -> Iterator[Finding]:
    """Warnings: a word more, such as another file, fits a wildcard as well."""
    if not any(subject.root.lies(program) for program in SUDO):
        return
    for line in read_sudoers(subject.root):
        if line.path in subject.shipped or len(line.text) > MOST_LINE:
            continue
        for found in COMMAND.finditer(line.text):
            words = " ".join(found["words"].split())
            what = f"sudo lets {line.text.split()[0]} give {found['program']} more than {words}: a "
            what += "wildcard in arguments stands for / and for further words too"
            where = Evidence(f"{line.path}:{line.number}", said=f"{found['program']} {words}")
            hint = "list the arguments, or let them run a script that checks them"
            yield SAY.warning(what, where, hint=hint)
