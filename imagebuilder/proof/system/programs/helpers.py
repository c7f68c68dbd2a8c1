# SPDX-License-Identifier: Apache-2.0
"""What programs need beside their libraries: helpers that they execute by a path that is compiled
in, and that somebody removed; and settings with which OpenSSL works.

sshd starts, and executes /usr/lib/openssh/sshd-session for each connection, which executes
sshd-auth.  No ELF header names them, so a closure of libraries is complete without them.  A
package's program and its helper are installed together: if only one of them is in the image,
something removed the other.

openssl.cnf(5) applies to every program with libcrypto: sshd, curl, Python.  If it asks for
providers or properties that are not there, none of them has a hash or a random number.  The image's
own openssl(1) tells; it also runs without that file, so that only the file can be the cause.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.elf import MAGIC
from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.process import Completed
from imagebuilder.proof.reading.config import list_at
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.say import prove_answered
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# A whole string of C.  Part of a longer one, as in a message, names no program to execute.
PATH = re.compile(rb"(?<=\0)/(?:usr/)?(?:lib|libexec|bin|sbin)/[\w.+@/-]+(?=\0)")
# Below /usr/lib are also data: programs there have no suffix, and libraries have this one.
LIBRARY = ".so"
# Larger programs contain what they need; they would take long to read.
MOST_BYTES = 64 << 20
OPENSSL = "/usr/bin/openssl"
# What fails without each command.  The last one makes a context for TLS.
NEEDED = {
    "random numbers": ("rand", "-hex", "8"),
    "hashes": ("dgst", "-sha256", "/dev/null"),
    "TLS": ("ciphers",),
}
WITHOUT = "OPENSSL_CONF=/dev/null"
FOLDER = re.compile(r'^OPENSSLDIR: "(/[^"]+)"', re.MULTILINE)
# PROCESS:error:CODE:LIBRARY:FUNCTION:REASON:FILE:LINE:DATA (ERR_print_errors(3)).
ERROR = re.compile(
    r"^[^:\n]+:error:[0-9A-F]+:[^:\n]*:(?P<where>[^:\n]*):(?P<why>[^:\n]*):[^:\n]*:\d+:(?P<data>.*)",
    re.MULTILINE,
)
# Which algorithms programs get, if they do not ask for others (fips_module(7)).
PROPERTIES = re.compile(r"^[ \t]*default_properties\s*=\s*(?P<value>[^#\n]*[^#\s])", re.MULTILINE)
# Modules of others may look for their device when they load, and there is none in the sandbox.
MODULES = ("/usr/lib/*/ossl-modules/*.so", "/usr/lib/*/engines-*/*.so")
OWN = frozenset(("legacy", "fips", "afalg", "capi", "loader_attic", "padlock"))
# Statuses of sh(1) and env(1): not executable, not found.
BROKEN = (126, 127)


@dataclass(frozen=True)
class Helper:
    """A removed file of `package`, and the program that names it; a start of `unit` leads there."""

    path: str
    package: str
    program: str
    unit: LoadedUnit


def prove_helpers(subject: Subject) -> Findings:
    for helper in find_removed(subject.root, subject.shipped, subject.startup):
        said = f"{helper.path} of the package {helper.package} is missing: {helper.program}, which "
        said += f"{helper.unit.name} needs, executes it by that path"
        evidence = Evidence(helper.program, said=helper.path)
        if is_pruned(subject, helper.path):
            hint = "remove the rule from `prune:` unless nobody needs that function"
            yield warning(said, evidence, hint=hint)
        else:
            hint = "keep the file; find the step or the script that removes it"
            yield fault(said, evidence, hint=hint)


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
    name = posixpath.basename(path)
    return "." not in name or name.endswith(LIBRARY) or f"{LIBRARY}." in name


def is_pruned(subject: Subject, path: str) -> bool:
    """Whether a rule of an overlay removes a path, or a folder above it."""
    rules = [rule for layer in subject.image.layers for rule in list_at(layer.inputs, "rules")]
    return any(isinstance(rule, str) and matches(path, rule) for rule in rules)


def matches(path: str, rule: str) -> bool:
    """Whether a path is that of a glob, or below it; a star is for a part of one name."""
    names, globs = path.split("/"), rule.rstrip("/").split("/")
    pairs = zip(names, globs, strict=False)
    return len(names) >= len(globs) and all(fnmatch.fnmatchcase(*pair) for pair in pairs)


def prove_openssl(subject: Subject) -> Findings:
    if not subject.root.is_file(OPENSSL):
        return
    answers = {what: subject.run([OPENSSL, *words]) for what, words in NEEDED.items()}
    for done in answers.values():
        if done.late:
            yield from prove_answered(done, "whether OpenSSL works", Evidence(OPENSSL))
    failed = {what: done for what, done in answers.items() if fails(done)}
    alone = [subject.run(["env", WITHOUT, OPENSSL, *NEEDED[what]]) for what in failed]
    path = settings_of(subject) if failed else None
    if path is None or any(done.status for done in alone) or names_others(subject.root, path):
        return
    why = next((found for done in failed.values() if (found := error_of(done))), "no error")
    properties = PROPERTIES.search(subject.root.text(path))
    asks = f", which asks for {properties['value']}" if properties else ""
    yield fault(
        f"OpenSSL fails with {path}{asks}: sshd and every other program that uses it have no "
        f"{', no '.join(failed)}: {why}",
        Evidence(path, said=properties[0].strip() if properties else why),
        hint="correct that file, or install the provider that it names; `openssl list -providers` "
        "lists the active ones",
    )


def fails(done: Completed) -> bool:
    """Whether a command ran to its end, and failed."""
    return done.status != 0 and done.status not in BROKEN and not done.late


def settings_of(subject: Subject) -> str | None:
    """The file that this OpenSSL reads, None if there is none."""
    folder = FOLDER.search(subject.run(["env", WITHOUT, OPENSSL, "version", "-d"]).stdout)
    return subject.root.resolve(f"{folder[1]}/openssl.cnf") if folder else None


def error_of(done: Completed) -> str:
    """OpenSSL's first error, "" if it printed none: function, reason and data."""
    if match := ERROR.search(done.stderr):
        return ": ".join(filter(None, (match["where"], match["why"], match["data"].strip())))
    return next(iter(done.stderr.strip().splitlines()), "")


def names_others(root: Root, path: str) -> bool:
    """Whether the settings name a module in the image that is not OpenSSL's own."""
    found = set(map(posixpath.basename, root.glob(*MODULES)))
    words = set(re.findall(r"[\w-]+", root.text(path)))
    return bool(({name.removesuffix(".so") for name in found} - OWN) & words)
