# SPDX-License-Identifier: Apache-2.0
"""Helpers that a program executes by a path that is compiled in, and that somebody removed.

sshd starts, and executes /usr/lib/openssh/sshd-session for each connection, which executes
sshd-auth.  No ELF header names them, so a closure of libraries is complete without them.  A
package's program and its helper are installed together: if only one of them is in the image,
something removed the other.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.elf import MAGIC
from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

# A whole string of C.  Part of a longer one, as in a message, names no program to execute.
PATH = re.compile(rb"(?<=\0)/(?:usr/)?(?:lib|libexec|bin|sbin)/[\w.+@/-]+(?=\0)")
# Below /usr/lib are also data: programs there have no suffix, and libraries have this one.
LIBRARY = ".so"
# Larger programs contain what they need; they would take long to read.
MOST_BYTES = 64 << 20
PRUNES = "rules"


@dataclass(frozen=True)
class Helper:
    """A removed file of `package`, and the program that names it; a start of `unit` leads there."""

    path: str
    package: str
    program: str
    unit: LoadedUnit


def prove_helpers(subject: Subject) -> Iterator[Finding]:
    """Faults of removed helpers of services that start; warnings if an overlay prunes them."""
    for helper in find_removed(subject.root, subject.shipped, subject.startup):
        said = f"{helper.path} of the package {helper.package} is missing: {helper.program}, which "
        said += f"{helper.unit.name} needs, executes it by that path"
        evidence = Evidence(helper.program, said=helper.path)
        if is_pruned(subject, helper.path):
            hint = "remove the rule from `prune:` unless nobody needs that function"
            yield SAY.warning(said, evidence, hint=hint)
        else:
            hint = "keep the file; find the step or the script that removes it"
            yield SAY.fault(said, evidence, hint=hint)


def find_removed(
    root: Root, shipped: Mapping[str, ShippedFile], startup: Startup
) -> Iterator[Helper]:
    """Each removed file once, and each program is read once."""
    started = {
        program: unit
        for unit in startup.starting()
        for _, words in unit.started()
        if (program := root.resolve(words[0]))
    }
    todo, read = sorted(started.items()), set(started)
    told: set[str] = set()
    while todo:
        program, unit = todo.pop(0)
        owner = shipped.get(program)
        for path in named_in(root, program) if owner else ():
            # As packages ship it: /lib/x is /usr/lib/x where /lib is a link.
            real = path if path in shipped or path.startswith("/usr/") else f"/usr{path}"
            file = shipped.get(real)
            if file is None or owner is None or file.package != owner.package:
                continue
            if root.lies(real):
                if real not in read:
                    read.add(real)
                    todo.append((real, unit))
            elif file.checksum and is_code(real) and real not in told:
                told.add(real)
                yield Helper(real, file.package, program, unit)


def named_in(root: Root, program: str) -> list[str]:
    """The paths of programs that an ELF file contains as strings, sorted."""
    host = root.host(program)
    if host is None or not host.is_file() or host.stat().st_size > MOST_BYTES:
        return []
    with host.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return []
        data = file.read()
    return sorted({path.decode() for path in PATH.findall(data)})


def is_code(path: str) -> bool:
    """Whether a path is that of a program or a library."""
    name = posixpath.basename(path)
    return "." not in name or name.endswith(LIBRARY) or f"{LIBRARY}." in name


def is_pruned(subject: Subject, path: str) -> bool:
    """Whether a rule of an overlay removes a path, or a folder above it."""
    listed = [layer.inputs.get(PRUNES) for layer in subject.image.layers]
    rules = [rule for each in listed if isinstance(each, list) for rule in each]
    return any(isinstance(rule, str) and matches(path, rule) for rule in rules)


def matches(path: str, rule: str) -> bool:
    """Whether a path is that of a glob, or below it; a star is for a part of one name."""
    names, globs = path.split("/"), rule.rstrip("/").split("/")
    pairs = zip(names, globs, strict=False)
    return len(names) >= len(globs) and all(fnmatch.fnmatchcase(*pair) for pair in pairs)
