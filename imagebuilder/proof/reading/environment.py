# SPDX-License-Identifier: Apache-2.0
"""The environment of a service, and the file that sets each variable (exec_child() of systemd)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.config import CMDLINE
from imagebuilder.proof.reading.systemd import LoadedUnit, read_config
from imagebuilder.proof.reading.texts import unquoted
from imagebuilder.proof.subject import Subject, once
from imagebuilder.root import Root

MANAGER = "systemd/system.conf"
REMOVE = "remove that variable where it is set"
# Of Gloo, NCCL, RCCL, TensorPipe and UCX.
INTERFACE = r"\w+_SOCKET_IFNAME|UCX_NET_DEVICES"
# In the value of these, a list of interfaces to leave out begins with ^; those below only have one.
EXCLUDING = re.compile(r"NCCL_SOCKET_IFNAME|NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME")
EXCLUDED = re.compile(r"(OMPI_MCA_)?(btl|oob)_tcp_if_exclude")
LOOPBACK = "lo"
# What a finding says of those that do not leave out the loopback interface.
USES_LOOPBACK = "does not exclude lo, as the default does: processes on several nodes connect to "
USES_LOOPBACK += "127.0.0.1, and do not find each other"
ADD_LOOPBACK = "add lo to that list, or remove it"
# Files of NCCL (setEnvFile() of its src/misc/param.cc) and of Open MPI, with lines of NAME=VALUE.
RUNTIME_FILES = ("/etc/nccl.conf", "/root/.nccl.conf", "/home/*/.nccl.conf",
                 "/etc/openmpi/openmpi-mca-params.conf")  # fmt: skip
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# Names of variables; systemd ignores lines with others (env_name_is_valid()).
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Quotes at the beginning of a value, or behind others, are taken off (parse_env_file_internal()).
QUOTED = re.compile(r"""\s*(?:"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>[^']*)')""", re.DOTALL)
# A line whose value begins with a mark, and has no other.
OPENED = re.compile(
    r"""^[ \t]*(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*(?P<mark>["'])(?:(?!(?P=mark)).)*$""",
    re.MULTILINE,
)
ENDING = {mark: re.compile(rf"(?<!\\){mark}") for mark in "\"'"}
MOST_NAME = 200  # characters of a line up to its value
BEFORE_VALUE = re.compile(r"\n[ \t]*[A-Za-z_]\w*=$")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
ESCAPED_IN_QUOTES = re.compile(r'\\(["\\`$])')


@dataclass(frozen=True)
class Variable:
    """The value of a variable, and the file that sets it."""

    value: str
    path: str

    def evidence(self, name: str) -> Evidence:
        return Evidence(self.path, symbol=name, said=f"{name}={self.value}")


Environment = Mapping[str, Variable]


def environment_of(subject: Subject, unit: LoadedUnit) -> dict[str, Variable]:
    """The variables that systemd and the unit set; later ones override earlier ones.

    In systemd's order: the defaults of all services, variables passed on from the kernel's command
    line, Environment=, the files.  UnsetEnvironment= removes from all of these.
    """
    found = dict(defaults(subject))
    words = {word.key: word.value for word in subject.words if "=" in word.text}
    found |= {n: Variable(words[n], CMDLINE) for n in unit.words("PassEnvironment") if n in words}
    for value in unit.every("Environment"):
        name, _, text = value.partition("=")
        found[name] = Variable(text, where(subject.root, unit.paths, name))
    for path in files_of(subject.root, unit):
        pairs = assignments(subject.root.text(path))
        found |= {name: Variable(text, path) for name, text in pairs}
    gone = unit.words("UnsetEnvironment")
    return {n: v for n, v in found.items() if n not in gone and f"{n}={v.value}" not in gone}


@once
def defaults(subject: Subject) -> dict[str, Variable]:
    """DefaultEnvironment= of systemd-system.conf(5), and systemd.setenv= of the command line."""
    found: dict[str, Variable] = {}
    for line in read_config(subject, MANAGER):
        if line.key == "DefaultEnvironment":
            known = found if line.value else {}
            found = known | {n: Variable(t, line.path) for n, t in pairs_of(line.value)}
    for word in subject.words:
        if word.key == "systemd.setenv":
            found |= {n: Variable(t, CMDLINE) for n, t in pairs_of(word.value)}
    return found


def files_of(root: Root, unit: LoadedUnit) -> Iterator[str]:
    """The files of EnvironmentFile= that are in the image."""
    for value in unit.every("EnvironmentFile"):
        pattern = value.partition(" (")[0].removeprefix("-")
        yield from root.glob(pattern) if any(mark in pattern for mark in "*?[") else [pattern]


def runtime_files(root: Root) -> Iterator[dict[str, Variable]]:
    """What each file of NCCL and Open MPI sets for every program that computes with them."""
    for path in root.glob(*RUNTIME_FILES):
        lines = (line.partition("=") for line in root.text(path).splitlines())
        yield {
            name.strip(): Variable(value.strip(), path)
            for name, is_set, value in lines
            if is_set and NAME.fullmatch(name.strip())
        }


def uses_loopback(name: str, value: str) -> bool:
    """Whether a variable leaves out some interfaces, but not the loopback interface.

    It replaces the default, which leaves that out: NCCL's is ^docker,lo (ncclFindInterfaces() of
    its src/misc/socket.cc), where a name stands for all that begin with it, unless = is before it.
    Open MPI's btl_tcp_if_exclude must contain lo (docs.open-mpi.org, "General Run-Time Support
    Notes").
    """
    value = value.strip()
    if EXCLUDED.fullmatch(name):
        listed = value.split(",")
        return bool(value) and not any(w == LOOPBACK or w.startswith("127.") for w in listed)
    if not EXCLUDING.fullmatch(name) or not value.startswith("^"):
        return False
    listed = value.lstrip("^=").split(",")
    if value.startswith("^="):
        return LOOPBACK not in listed
    return not any(word and LOOPBACK.startswith(word) for word in listed)


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """The variables of a file, as EnvironmentFile= of systemd.exec(5) reads it."""
    for name, value in named_values(text):
        quoted, rest = unquoted_value(value)
        yield name, quoted + ESCAPED.sub(r"\1", rest.strip())


def remarks(text: str) -> Iterator[tuple[str, str]]:
    """The variables of such a file with what looks like a comment behind the value.

    systemd takes it for a part of the value.
    """
    for name, value in named_values(text):
        _, rest = unquoted_value(value)
        if remark := re.search(r"\s(#.*)", rest):
            yield name, remark[1]


def named_values(text: str) -> Iterator[tuple[str, str]]:
    """The variables of such a file, with values as they are written."""
    for line in lines_of(text):
        name, is_set, value = line.partition("=")
        if is_set and NAME.fullmatch(name.strip()):
            yield name.strip(), value


def unquoted_value(text: str) -> tuple[str, str]:
    """The quoted beginning of a value without its quotes, and the rest as it is written."""
    found, place = "", 0
    while quoted := QUOTED.match(text, place):
        place = quoted.end()
        double = quoted["double"]
        found += quoted["single"] if double is None else ESCAPED_IN_QUOTES.sub(r"\1", double)
    return found, text[place:]


def ignored_lines(text: str) -> list[str]:
    """The lines of such a file that would set a variable in a shell, but do not in systemd."""
    named = [(line, line.partition("=")[0].strip()) for line in lines_of(text) if "=" in line]
    return [line for line, name in named if not NAME.fullmatch(name)]


def unclosed(text: str) -> Iterator[str]:
    """The variables of such a file whose quotation mark is ended by nothing or by `B="` below."""
    for found in OPENED.finditer(text):
        end = ENDING[found["mark"]].search(text, found.end())
        if end is None or BEFORE_VALUE.search(text[found.end() : end.start()][-MOST_NAME:]):
            yield found["name"]
            return


def lines_of(text: str) -> list[str]:
    """The lines of a file of variables that are neither empty nor comments."""
    stripped = [line.strip() for line in text.replace("\\\n", "").splitlines()]
    return [line for line in stripped if line and line[0] not in "#;"]


def pairs_of(text: str) -> Iterator[tuple[str, str]]:
    """NAME=VALUE words of a text with quotes."""
    for word in unquoted(text):
        name, is_set, value = word.partition("=")
        if is_set:
            yield name, value


def where(root: Root, paths: Iterable[str], name: str) -> str:
    """The last of the files that mentions a variable."""
    listed = list(paths)
    return next((p for p in reversed(listed) if name in root.text(p)), listed[0] if listed else "")


def expanded(words: Iterable[str], environment: Environment) -> list[str]:
    """A command line with variables expanded: `${X}` in a word, and `$X` split into words."""
    found: list[str] = []
    values = {name: variable.value for name, variable in environment.items()}
    for word in words:
        if whole := re.fullmatch(r"\$(\w+)", word):
            found += values.get(whole[1], "").split()
        else:
            found.append(VARIABLE.sub(lambda m: values.get(m[1] or m[2], ""), word))
    return found
