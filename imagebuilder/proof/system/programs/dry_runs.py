# SPDX-License-Identifier: Apache-2.0
"""What programs of the image say of a site's settings when they only test them.

Many daemons have an option for that.  A program is asked if a file that it reads is not as a
package ships it, and only a complaint that names such a file counts: what depends on the network,
on a certificate that a node gets at boot or on the kernel of the builder is none of the image's.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.process import Completed
from imagebuilder.proof.reading.site import site_files
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.programs.dry_run_table import DRY_RUNS, DryRun

SECONDS = 30
QUOTED = re.compile(r"""["'`](?P<word>[^"'`\s]{2,80})["']""")
# What a program gets from its environment, which is not the one of a test (Caddy).
VARIABLE = "{$"
LONGEST_LINE, MOST_LINES = 1000, 20_000
MOST_TOLD = 3  # complaints of one program: the later ones often follow from the first


@dataclass(frozen=True)
class RefusedLine:
    """What a program does not accept, in which file; `line` is 0 if it does not say."""

    path: str
    line: int
    what: str


def prove_dry_runs(subject: Subject) -> Iterator[Finding]:
    """Warnings, one for each line that a program refuses or ignores."""
    for each in DRY_RUNS:
        program = next(filter(subject.root.is_file, each.programs), "")
        files = site_settings(subject, each) if program else ()
        if files:
            told = dict.fromkeys(complaints(subject, each, program, files))
            for complaint in list(told)[:MOST_TOLD]:
                yield finding(each, program, complaint)


def site_settings(subject: Subject, each: DryRun) -> tuple[str, ...]:
    """The site's files among those that a program reads, each once."""
    found = site_files(subject, *each.files)
    return tuple(dict.fromkeys(filter(subject.root.is_file, found)))


def complaints(
    subject: Subject, each: DryRun, program: str, files: tuple[str, ...]
) -> Iterator[RefusedLine]:
    """What the program says of `files`."""
    script = each.script.format(program=program)
    for path in files if "$1" in script else ("",):
        done = subject.run(["sh", "-c", script, "sh", path], seconds=SECONDS)
        if done.late:
            continue
        said = printed(done)
        for match in chain(*(form.finditer(said) for form in each.forms)):
            groups = match.groupdict()
            what = " ".join(match["what"].split())
            named = groups.get("path") or path
            fitting = (each for each in files if named in (each, posixpath.basename(each)))
            found = next(fitting, "") if named else quoting_file(subject, what, files)
            line = int(groups.get("line") or 0)
            if found and not each.elsewhere.search(what) and not is_set(subject, found, line):
                yield RefusedLine(found, line, what)


def printed(done: Completed) -> str:
    """What a program of the image printed, as far as patterns are applied to it."""
    lines = (done.stdout + done.stderr).splitlines()
    return "".join(f"{line[:LONGEST_LINE]}\n" for line in lines[:MOST_LINES])


def quoting_file(subject: Subject, what: str, files: tuple[str, ...]) -> str:
    """The file that has the word which a complaint quotes; the only one, if there is one."""
    words = [match["word"] for match in QUOTED.finditer(what)]
    holds = (path for path in files if any(word in subject.root.text(path) for word in words))
    return files[0] if len(files) == 1 else next(holds, "")


def is_set(subject: Subject, path: str, line: int) -> bool:
    """Whether a line has a value from the environment in it."""
    lines = subject.root.text(path).splitlines()
    return VARIABLE in (lines[line - 1] if 0 < line <= len(lines) else "")


def finding(each: DryRun, program: str, complaint: RefusedLine) -> Finding:
    line = f"line {complaint.line}" if complaint.line else ""
    does = "refuses" if each.refuses else "ignores"
    place = f"{line} of {complaint.path}" if line else complaint.path
    what = f"{each.name} {does} {place}: {complaint.what}"
    hint = f"correct it; `{each.command(posixpath.basename(program))}` in the image "
    hint += "(imagebuilder shell) tests it again"
    return SAY.warning(what, Evidence(complaint.path, said=line or complaint.what), hint=hint)
