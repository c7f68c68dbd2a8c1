# SPDX-License-Identifier: Apache-2.0
"""A node's boot as the node sees it: the scripts are run word by word, files are fetched whole.

Nothing in here knows how drift is found; it is what drift is measured by.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.nodes.config import TICKET
from imagebuilder.tree import Tree
from tests.unit.web_log import lease, report_line, secret_of, ticket_line, write_log

HTTP = "http://192.0.2.1"
LABELS = re.compile(r"^:(\S+)$")


@dataclass(frozen=True)
class Fetched:
    """What a boot consists of, byte by byte; `cmdline` without names of releases.

    `rooted`: whether there is anything where the word `root=` leads to.
    """

    vmlinuz: str
    initrd: str
    root: str
    cmdline: str
    files: str
    report: str = field(compare=False)
    rooted: bool = field(compare=False)

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """By the names that drift has for them."""
        return {
            "kernel": (self.vmlinuz, self.initrd),
            "root": (self.root,),
            "cmdline": (self.cmdline,),
            "files": (self.files,),
        }


def fetch(tree: Tree, mac: str) -> Fetched | None:
    """What the owner of `mac` gets if it boots now; None when its script leads nowhere."""
    return Machine(tree, mac).boot()


class Machine:
    """iPXE, as far as our scripts go: settings, and what was loaded."""

    def __init__(self, tree: Tree, mac: str) -> None:
        self.tree = tree
        self.settings = {
            "server": "192.0.2.1",
            "http": HTTP,
            "roots": os.fspath(tree.roots),
            "report": f"{HTTP}/report",
            "netX/gateway": "192.0.2.254",
            "netX/netmask": "255.255.255.0",
            "netX/dns": "192.0.2.53",
        }
        self.kernel: list[str] = []
        self.initrds: list[Path] = []
        self.own = f"{HTTP}/nodes/{mac.replace(':', '-')}/boot.ipxe"

    def boot(self) -> Fetched | None:
        """Run the node's script to its end."""
        if not self.run(self.own):
            return None
        report = next(w for w in self.kernel if w.startswith("imagebuilder.report="))
        release = "/".join(report.split("/")[-2:])
        # What initrd= names is in `initrd` and `files`.
        own = [w for w in self.kernel[1:] if w != report and not w.startswith("initrd=")]
        words = [w.replace(release, "RELEASE") for w in own]
        *early, initrd = (path for path in self.initrds if release in os.fspath(path))
        others = [path for path in self.initrds if path not in (*early, initrd)]
        return Fetched(
            vmlinuz=digest(self.find(self.kernel[0])),
            initrd=" ".join(map(digest, (*early, initrd))),
            root=digest_of_tree(self.tree.roots / release),
            cmdline=" ".join(words),
            files=" ".join(map(digest, others)),
            report=report.partition("=")[2],
            rooted=self.lead(next(w for w in self.kernel if w.startswith("root="))).exists(),
        )

    def lead(self, word: str) -> Path:
        """What the initrd is to mount or to fetch."""
        kind, _, place = word.removeprefix("root=").partition(":")
        return Path(place.partition(":")[2]) if kind == "nfs4" else self.find(f"{kind}:{place}")

    def find(self, url: str) -> Path:
        """The file behind a URL, as the web server maps them."""
        path = url.removeprefix(f"{HTTP}/")
        return (self.tree.path if path.startswith("channels/") else self.tree.http) / path

    def run(self, url: str) -> bool:
        """Run a script; whether it ended in a boot."""
        if not self.find(url).is_file():
            return False
        lines = self.find(url).read_text().splitlines()
        labels = {m[1]: number for number, line in enumerate(lines) if (m := LABELS.match(line))}
        place = 0
        while place < len(lines):
            line = lines[place]
            place += 1
            if line.startswith(("#", ":")) or not line:
                continue
            done = self.run_line(self.expand(line))
            if done == "boot":
                return True
            if done == "exit":
                return False
            if done.startswith("goto "):
                place = labels[done.removeprefix("goto ")]
        return False

    def expand(self, text: str) -> str:
        """Settings in place of their names; nothing for one that is not set."""
        return re.sub(r"\$\{([^}]*)\}", lambda m: self.settings.get(m[1], ""), text)

    def run_line(self, line: str) -> str:
        """Run commands that && and || join; what is to happen then: "", boot, exit, goto LABEL."""
        ok, wanted = True, True
        for part in re.split(r"(\s&&|\s\|\|)(?=\s|$)", line):
            if part.strip() in ("&&", "||"):
                wanted = ok if part.strip() == "&&" else not ok
                ok = ok or part.strip() == "||"
                continue
            if not wanted or not part.strip():
                continue
            ok, then = self.command(part.split())
            if then:
                return then
        return "" if ok else "exit"

    def command(self, words: list[str]) -> tuple[bool, str]:
        """One command: whether it succeeded, and what is to happen then."""
        name, *given = words
        if name == "set":
            self.settings[given[0]] = " ".join(given[1:])
            if not given[1:]:
                self.settings.pop(given[0])
        elif name == "clear":
            return self.settings.pop(given[0], None) is not None, ""
        elif name == "isset":
            return bool(given), ""
        elif name == "iseq":
            return len(given) == 2 and given[0] == given[1], ""
        elif name == "goto":
            return True, f"goto {given[0]}"
        elif name == "kernel":
            self.kernel = given[2:]
            return self.find(given[2]).is_file(), ""
        elif name == "initrd":
            self.initrds.append(self.find(given[2]))
            return self.initrds[-1].is_file(), ""
        elif name == "chain":
            return (True, "boot") if self.run(given[1]) else (False, "")
        elif name in ("boot", "exit"):
            return True, name
        else:
            assert name in ("echo", "imgfree"), name
        return True, ""


def digest(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_of_tree(top: Path) -> str:
    """A digest of all that a root has: names, kinds, modes, owners, targets, contents."""
    whole = hashlib.sha256()
    for path in [top, *sorted(top.rglob("*"))]:
        found = path.lstat()
        line = f"{path.relative_to(top)} {found.st_mode} {found.st_uid} {found.st_gid}"
        whole.update(line.encode())
        if stat.S_ISLNK(found.st_mode):
            whole.update(os.fsencode(path.readlink()))
        elif stat.S_ISREG(found.st_mode):
            whole.update(path.read_bytes())
    return whole.hexdigest()


def report(tree: Tree, mac: str, fetched: Fetched, second: int, stage: str = "switch-root") -> None:
    """The node fetched its script and says this of its boot, as the web server writes it down."""
    time = f"2026-11-20T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}+00:00"
    secret = secret_of(f"{mac} {second}")
    told = fetched.report.removeprefix(HTTP).replace(f"/{TICKET}/", f"/{secret}/")
    lease(tree, mac)
    uri = f"{told}?stage={stage}&uptime=9.1&node={mac}"
    write_log(tree, ticket_line(mac, secret, time=time), report_line(uri, time=time))
