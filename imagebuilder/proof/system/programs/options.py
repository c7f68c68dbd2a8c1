# SPDX-License-Identifier: Apache-2.0
"""Options of a site's command lines that their program does not have.

After an update a daemon ends at a flag that it no longer knows.  A program compares options with
their names, so each is a text in it or in a library that it loads: one that is nowhere there is no
option of it.
"""

from __future__ import annotations

import mmap
import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from imagebuilder.elf import MAGIC, Needs
from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import environment_of, expanded, files_of
from imagebuilder.proof.reading.interpreters import INTERPRETER, SHELL, first_line, runs
from imagebuilder.proof.reading.libraries import search_of
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

KEYS = ("ExecStartPre", "ExecStart")
OPTION = re.compile(r"--([A-Za-z][\w-]{2,})")
# Their options may be those of what they run, or be read by code that is not in the program.
RUNNERS = re.compile(
    rf"{INTERPRETER.pattern}|uv|npx|xargs|ssh|mpirun|docker|podman|nerdctl|ctr|crictl|ip|nsenter|"
    r"unshare|chroot|bwrap|sudo|su|runuser|setpriv|numactl|taskset|chrt|nice|ionice|timeout|stdbuf|"
    r"flock|systemd-\w+|dbus-run-session"
)
# What libraries of C and frameworks have for every program.
EVERY = frozenset(("help", "usage", "version"))
# A script that asks for none of its words starts with any.
ASKS = re.compile(rb"\$\{?[1-9#]|\b(getopts?|shift)\b")
# What starts another program, which may read the options, is a small program that has one of these.
STARTS = re.compile(rb"\0(exec[vl]p?e?|fexecve|posix_spawnp?|dlm?open)\0")
MOST_STUB = 64 << 10  # bytes
PASSES_ON = re.compile(rb"\$[@*]|\$\{[@*]")
# Libraries of the compiler and of C read no options, but have many words.
PLAIN = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|resolv)\.so).*")
SEARCH = "LD_LIBRARY_PATH"
MOST = 60  # libraries of a program


def prove_options(subject: Subject) -> Iterator[Finding]:
    """Faults of options that a program does not have; warnings if it has none of the line's, if it
    may only start another one, or if a variable leads it to libraries that may be others than those
    that were read.
    """
    engines = {engine.unit for engine in subject.expectations.engines}
    for unit in subject.startup.starting():
        sources = [*unit.paths, *files_of(subject.root, unit)]
        if unit.name in engines or all(path in subject.shipped for path in sources):
            continue
        environment = environment_of(subject, unit)
        for key in KEYS:
            for words in unit.commands.get(key, ()):
                command = expanded(words, environment)
                is_sure = SEARCH not in environment
                yield from prove_command(subject, unit, key, command, is_sure=is_sure)


def prove_command(
    subject: Subject, unit: LoadedUnit, key: str, words: Sequence[str], *, is_sure: bool
) -> Iterator[Finding]:
    program = find_program(subject.root, words[0]) if words else ""
    names = list(dict.fromkeys(options_of(subject.root, words[1:])))
    if not program or not names or RUNNERS.fullmatch(posixpath.basename(program)):
        return
    texts = texts_of(subject, program)
    unknown = [name for name in names if texts and not any(has(name, text) for text in texts)]
    hint = "remove it, or look up its new name with --help"
    place = (unit.paths or (program,))[-1]
    if unknown and len(unknown) == len(names):
        # A program that is packed, or a wrapper, has none of its options as a text.
        listed = some(f"--{name}" for name in names)
        what = (
            f"{unit.name} might not start: {program} contains none of its options: {listed} "
            f"({key}=)"
        )
        yield SAY.warning(what, Evidence(place, said=listed), hint=hint)
        return
    is_sure = is_sure and bool(texts) and not is_stub(texts[0])
    for name in unknown:
        how = "does not start" if is_sure else "might not start"
        what = f"{unit.name} {how}: {program} has no option --{name} ({key}=)"
        say = SAY.fault if is_sure else SAY.warning
        yield say(what, Evidence(place, said=f"--{name}"), hint=hint)


def is_stub(program: mmap.mmap | bytes) -> bool:
    """Whether a program is so small that it may do no more than start another one."""
    return len(program) <= MOST_STUB and STARTS.search(program) is not None


def options_of(root: Root, words: Sequence[str]) -> Iterator[str]:
    """The names of long options, up to what another program gets."""
    for word in takewhile(lambda word: word != "--" and not root.is_file(word), words):
        if (found := OPTION.match(word)) and found[1] not in EVERY:
            yield found[1]


def texts_of(subject: Subject, program: str) -> list[mmap.mmap | bytes]:
    """The program and the libraries that it loads; none if it may get options from elsewhere."""
    first = subject.root.map(program) or b""
    if first[: len(MAGIC)] != MAGIC:
        is_shell = runs(SHELL, first_line(first))
        reads_all = is_shell and ASKS.search(first) and not PASSES_ON.search(first)
        return [first] if reads_all else []
    search = search_of(subject)
    found, queue = {program: first}, [subject.root.resolve(program) or program]
    while queue:
        path = queue.pop()
        needs = search.files.native.get(path, Needs(0, 0))
        for name in needs.needed:
            if PLAIN.fullmatch(name):
                continue
            library = search.find(name, path, needs)
            if not library or len(found) > MOST:
                return []
            if library not in found:
                found[library] = subject.root.map(library) or b""
                queue.append(library)
    return list(found.values())


def has(name: str, text: mmap.mmap | bytes) -> bool:
    """Whether an option can be one of a program: also as `no_name`, or negated."""
    plain = name.removeprefix("no-")
    return any(text.find(each.encode()) >= 0 for each in (name, plain, plain.replace("-", "_")))
