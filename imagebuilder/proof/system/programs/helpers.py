# SPDX-License-Identifier: Apache-2.0
"""What programs need beside their libraries: helpers that they execute by a path that is compiled
in, and that somebody removed; settings with which OpenSSL works; and daemons that run, and do
nothing: chronyd (chrony.conf(5)), logrotate(8) and TuneD.

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
from imagebuilder.proof.reading.config import list_at, read_including
from imagebuilder.proof.reading.scripts import SiteService, services_of, site_files
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.reading.texts import whole
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
CHRONY = ("/etc/chrony/chrony.conf", "/etc/chrony.conf")
SOURCES = "sourcedir"
COMMENTS = ("#", "!", ";", "%")
# How many sources a line may bring; a pool has four unless it says otherwise (maxsources).
POOL, OTHERS = "pool", ("server", "peer", "refclock")
FROM_POOL = 4
RULES = ("/etc/logrotate.conf", "/etc/logrotate.d/*")
# create [MODE] [USER GROUP], createolddir [MODE] [USER GROUP], su USER GROUP
OWNERS = re.compile(
    r"^[ \t]*(?P<key>create|createolddir|su)[ \t]+(?:0?[0-7]{3,4}[ \t]+)?"
    r"(?P<user>[A-Za-z_][\w.-]*)[ \t]+(?P<group>[A-Za-z_][\w.-]*)[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
ACTIVE = "/etc/tuned/active_profile"
# Since 2.23 in folders of their own (redhat-performance/tuned, tuned/consts.py: LOAD_DIRECTORIES).
NEW = ("/etc/tuned/profiles", "/usr/lib/tuned/profiles")
OLD = ("/etc/tuned", "/usr/lib/tuned")
INCLUDE = re.compile(r"^[ \t]*include[ \t]*=[ \t]*(?P<names>[^#\n]+)", re.MULTILINE)
MOST_PROFILES = 20  # profiles that include each other


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
    what = f"OpenSSL fails with {path}{asks}: sshd and every other program that uses it have no "
    what += f"{', no '.join(failed)}: {why}"
    hint = "correct that file, or install the provider that it names; `openssl list -providers` "
    hint += "lists the active ones"
    yield fault(what, Evidence(path, said=properties[0].strip() if properties else why), hint=hint)


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


@dataclass(frozen=True)
class ChronyLine:
    """The words of a line, the first in lower case, and where."""

    words: tuple[str, ...]
    path: str

    @property
    def where(self) -> Evidence:
        return Evidence(self.path, said=" ".join(self.words))

    def option(self, name: str) -> str:
        """The word after an option, "" without one."""
        after = self.words[self.words.index(name) + 1 :] if name in self.words else ()
        return next(iter(after), "")


def prove_time_sources(subject: Subject) -> Findings:
    """Warnings of servers in the image that chronyd never selects."""
    for service in [*services_of(subject, "chronyd")][:1]:
        lines = list(read_chrony(subject.root, service))
        sources = [line for line in lines if line.words[0] in (POOL, *OTHERS)]
        settings = {line.words[0]: line for line in lines}
        yield from prove_authenticated(service, sources, settings.get("authselectmode"))
        # Files with more servers may be made when a node boots.
        is_open = any(SOURCES in subject.root.text(path) for path in {x.path for x in lines})
        least = settings.get("minsources")
        many = sum(map(count, sources))
        if least and sources and not is_open and whole(least.words[1]) > many:
            what = f"{service.name} never sets the clock: {' '.join(least.words)} of {least.path}, "
            what += f"but it has only {many} of them"
            yield warning(what, least.where, hint="name more servers, or remove minsources")


def prove_authenticated(
    service: SiteService, sources: list[ChronyLine], mode: ChronyLine | None
) -> Findings:
    if mode is None or mode.words[1:2] != ("require",) or not sources:
        return
    if any(line.words[0] == "refclock" or {"nts", "key"} & {*line.words[2:]} for line in sources):
        return
    what = f"{service.name} never sets the clock: authselectmode require of {mode.path} needs "
    what += "servers that authenticate, and none has nts or key"
    hint = "add nts or key to the servers, or use authselectmode prefer"
    yield warning(what, mode.where, *(line.where for line in sources[:1]), hint=hint)


def count(line: ChronyLine) -> int:
    most = line.option("maxsources")
    return (whole(most) if most.isdecimal() else FROM_POOL) if line.words[0] == POOL else 1


def read_chrony(root: Root, service: SiteService) -> Iterator[ChronyLine]:
    """The lines of the file that chronyd is told to read, and of those that it includes."""
    told = service.option("-f")
    path = told or next(filter(root.is_file, CHRONY), CHRONY[0])

    def lines_of(path: str) -> Iterator[ChronyLine]:
        for text in root.text(path).splitlines():
            words = text.split()
            if words and not words[0].startswith(COMMENTS):
                # Each with at least one argument, so that a setting without any is none.
                yield ChronyLine((words[0].lower(), *(words[1:] or [""])), path)

    def included(line: ChronyLine) -> list[str] | None:
        name, *folders = line.words
        if name == "include":
            return root.glob(*folders)
        if name == "confdir":
            found = {n: f"{folder}/{n}" for folder in reversed(folders) for n in root.names(folder)
                     if n.endswith(".conf")}  # fmt: skip
            return [found[name] for name in sorted(found)]
        if name == SOURCES:
            return [f"{f}/{n}" for f in folders for n in root.names(f) if n.endswith(".sources")]
        return None

    yield from read_including(posixpath.normpath(path), lines_of, included)


def prove_rotation(subject: Subject) -> Findings:
    """Warnings of rules of logrotate(8) with accounts that do not exist: it skips them."""
    if not subject.root.is_file("/usr/sbin/logrotate"):
        return
    # systemd makes them when the service starts, with a group of the same name.
    units = [u for u in subject.startup.starting() if u.last("DynamicUser") == "yes"]
    dynamic = {unit.last("User") or unit.name.removesuffix(".service") for unit in units}
    users = subject.accounts.users.keys() | dynamic
    groups = subject.accounts.groups.keys() | dynamic
    for path in site_files(subject, *RULES):
        for line in OWNERS.finditer(subject.root.text(path)):
            lost = [f"the account {line['user']}"] if line["user"] not in users else []
            lost += [f"the group {line['group']}"] if line["group"] not in groups else []
            if lost:
                said = " ".join(line[0].split())
                what = f"logrotate skips the logs of {path}: {said} names {' and '.join(lost)}, "
                what += "which the image does not have, and the logs grow without end"
                hint = "name an account and a group of the image, such as root adm on Debian"
                yield warning(what, Evidence(path, said=said), hint=hint)


def prove_tuning(subject: Subject) -> Findings:
    """Warnings of the active profile, and of those that it includes."""
    folders = profile_folders(subject.root)
    root = subject.root
    todo = root.text(ACTIVE).split()
    where = Evidence(ACTIVE, said=" ".join(todo))
    service = next(services_of(subject, "tuned"), None)
    if service is None or not folders:
        return
    seen: set[str] = set()
    places = {name: where for name in todo}
    while todo and len(seen) < MOST_PROFILES:
        name = todo.pop(0)
        if name in seen or "$" in name:
            continue
        seen.add(name)
        paths = (f"{folder}/{name}/tuned.conf" for folder in folders)
        path = next(filter(root.is_file, paths), "")
        for found in INCLUDE.finditer(root.text(path)) if path else ():
            more = [each.lstrip("-") for each in re.split(r"[,;\s]+", found["names"].strip())]
            optional = re.findall(r"-(\S+?)(?=[,;\s]|$)", found["names"])
            more = [each for each in more if each and each not in optional]
            places |= {each: Evidence(path, said=found[0].strip()) for each in more}
            todo += more
        if not path:
            others = (f"{folder}/{name}/tuned.conf" for folder in {*OLD, *NEW} - {*folders})
            other = next(filter(root.is_file, others), "")
            what = f"{service.name} tunes nothing: the profile {name} is not in "
            what += " or ".join(folders)
            what += f", but {other} is in a folder of other releases of TuneD" if other else ""
            hint = f"put it into {folders[0]}/{name}" if other else "install or correct the profile"
            yield warning(what, places[name], hint=hint)


def profile_folders(root: Root) -> tuple[str, ...]:
    """Where this TuneD looks for profiles, by its own ones; none if it has none."""
    for folders in (NEW, OLD):
        if root.glob(f"{folders[1]}/*/tuned.conf"):
            return folders
    return ()
