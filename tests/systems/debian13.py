# SPDX-License-Identifier: Apache-2.0
"""A Debian 13 of its own for a test: a newcomer's account on a bare system, in namespaces.

It gets its packages from where this machine gets them.
"""

from __future__ import annotations

import os
import re
import sys
from ast import literal_eval
from collections.abc import Iterator
from configparser import RawConfigParser
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError
from imagebuilder.families.apt.mirrors import find_mirrors
from imagebuilder.process import run

ENTER = Path(__file__).parent / "enter"
COPIED = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/resolv.conf"))
NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--")
# What README.md takes for granted, and an account that may use it.
PACKAGES = "sudo,git,make,ca-certificates"
# Debian's umask for accounts with a group of their own.
LOGIN = (
    "runuser", "-u", "user", "--",
    "env", "-i", "HOME=/home/user", "USER=user", "LOGNAME=user", "SHELL=/bin/bash", "TERM=dumb",
    "PATH=/usr/local/bin:/usr/bin:/bin",
)  # fmt: skip
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class System:
    """A system in a folder; `readable` is what it sees of this machine."""

    root: Path
    readable: tuple[Path, ...]

    def as_root(self, *argv: str) -> list[str]:
        """The command that runs `argv` there as root."""
        readable = "\n".join(map(os.fspath, self.readable))
        entered = [os.fspath(ENTER), os.fspath(self.root), "debian13", *argv]
        return ["env", f"READABLE={readable}\n", *NAMESPACES, *entered]

    def as_user(self, script: str) -> list[str]:
        """The command that runs a shell script there as `user`, in the home directory."""
        proxies = [f"{name}={os.environ[name]}" for name in PROXIES if name in os.environ]
        words = "umask 0002; cd; set -eux; " + script
        return self.as_root(*LOGIN, *proxies, "bash", "-c", words)


def make_system(root: Path) -> System:
    """A bare Debian 13 in `root` with `user`, who may sudo without a password."""
    mirrors = find_mirrors({}, os.environ)
    if not mirrors.keys() >= {"debian", "debian-security"}:
        raise HostError("apt knows no mirror of Debian", hint="set IMAGEBUILDER_MIRROR")
    archive, security = mirrors["debian"], mirrors["debian-security"]
    sources = [
        f"deb {archive} trixie main",
        f"deb {archive} trixie-updates main",
        f"deb {security} trixie-security main",
    ]
    options = [f"--aptopt={line}" for line in apt_options()]
    run([
        "mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", f"--include={PACKAGES}",
        "--dpkgopt=force-unsafe-io", "--skip=cleanup/apt/lists", *options, "trixie", root, *sources,
    ])  # fmt: skip
    config = pip_config()
    for path in (*COPIED, *filter(Path.is_file, named_paths(config))):
        inside(root, path).unlink(missing_ok=True)
        inside(root, path).parent.mkdir(parents=True, exist_ok=True)
        inside(root, path).write_bytes(path.read_bytes())
    (root / "etc/hosts").write_text(Path("/etc/hosts").read_text() + "127.0.1.1 debian13\n")
    (root / "etc/sudoers.d/user").write_text("user ALL=(ALL) NOPASSWD: ALL\n")
    with (root / "etc/pip.conf").open("w") as file:
        config.write(file)
    seen = [path for path in local_folders(config) if not inside(root, path).exists()]
    for path in seen:
        inside(root, path).mkdir(parents=True)
    system = System(root, tuple(seen))
    run(system.as_root("useradd", "--create-home", "--shell", "/bin/bash", "user"))
    return system


def inside(root: Path, path: Path) -> Path:
    """Where `path` is in the tree of a system."""
    return root / path.relative_to("/")


def apt_options() -> Iterator[str]:
    """How this machine's apt reaches its mirrors, as lines of apt.conf(5)."""
    for line in run(["apt-config", "dump", "Acquire"]).stdout.splitlines():
        if re.match(r'Acquire::(https?::|Check-|Retries)\S* ".', line):
            yield line


def pip_config() -> RawConfigParser:
    """How this machine's pip reaches its indexes, from its files and its environment."""
    config = RawConfigParser()
    asked = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    said = run([sys.executable, "-m", "pip", "config", "list"], env=asked).stdout
    for line in sorted(said.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        section, _, key = name.replace(":env:", "global").partition(".")
        if not config.has_section(section):
            config.add_section(section)
        config.set(section, key, str(literal_eval(value)))
    return config


def local_folders(config: RawConfigParser) -> Iterator[Path]:
    """The folders that the configuration names; an index with what lies beside it, because its
    pages name their files as ../../files.
    """
    for word in named_words(config):
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and path.is_dir():
            yield path.parent if word.startswith("file:") else path


def named_paths(config: RawConfigParser) -> Iterator[Path]:
    """The paths of this machine that the configuration names, such as of constraints."""
    return (path for path in map(Path, named_words(config)) if path.is_absolute())


def named_words(config: RawConfigParser) -> list[str]:
    return [
        word
        for name in config.sections()
        for value in config[name].values()
        for word in value.split()
    ]
