# SPDX-License-Identifier: Apache-2.0
"""A distribution so small that an image of it is built in seconds, by the same tools as a real one.

Its programs are this host's own, with the libraries they want, in packages that real apt and dpkg
resolve, fetch and install; its kernel is a header with a version, and its dracut a script.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.process import run
from tests.fixtures.aptrepo import Deb
from tests.unit.proof.trees import kernel_files

ARCHITECTURE = "amd64"
MAIN, SECURITY = "tiny", "tiny-security"
KERNEL = "linux-image-tiny"
# dpkg and apt, what dpkg looks for on PATH, and what the steps run in a root.
PROGRAMS = (
    "dpkg", "dpkg-deb", "dpkg-query", "dpkg-split", "dpkg-trigger", "update-alternatives",
    "start-stop-daemon", "ldconfig", "apt-get", "apt-config", "tar", "diff", "gzip",
    "env", "realpath", "stat", "truncate", "cp", "rm", "ls", "cat", "mkdir", "chmod", "touch",
)  # fmt: skip
METHODS = tuple(f"/usr/lib/apt/methods/{name}" for name in ("copy", "file", "store"))
TABLES = tuple(f"/usr/share/dpkg/{name}table" for name in ("cpu", "os", "tuple"))
BUSYBOX = ("sed", "grep", "mv", "ln", "dirname", "head", "timeout", "getent", "id",
    "sleep",
)  # fmt: skip
LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")

DRACUT = """\
#!/bin/sh
# dracut --force --no-hostonly --reproducible --kver RELEASE FILE
set -eu
printf 'the initrd of %s\\n' "$5" > "$6"
cat /usr/lib/tiny/* >> "$6"
"""


@dataclass(frozen=True)
class Archive:
    """The state of the archive: the packages of its two suites."""

    main: tuple[Deb, ...]
    security: tuple[Deb, ...] = ()

    def with_main(self, deb: Deb) -> Archive:
        """With this package in the place of the one of its name."""
        return replace(self, main=replaced(self.main, deb))

    def with_security(self, deb: Deb) -> Archive:
        """The same for the security suite, which may not have had one."""
        return replace(self, security=replaced(self.security, deb))

    def newest(self, name: str) -> Deb:
        """The package of that name that apt takes, whichever suite it is in."""
        return max((d for d in (*self.main, *self.security) if d.name == name), key=numbers_of)


def numbers_of(deb: Deb) -> tuple[int, ...]:
    """What orders the versions of this distribution, which are numbers all."""
    return tuple(map(int, re.findall(r"\d+", deb.version)))


def replaced(debs: Sequence[Deb], new: Deb) -> tuple[Deb, ...]:
    """`debs` with `new` instead of the package of that name."""
    return (*(deb for deb in debs if deb.name != new.name), new)


def first_archive() -> Archive:
    """What the archive holds before the first night."""
    return Archive((
        base_package(),
        kernel_package("6.1.0-1-tiny", "6.1.10-1"),
        Deb("dracut", files={"/usr/bin/dracut": DRACUT, "/usr/lib/tiny/dracut": "dracut\n"},
            programs=("/usr/bin/dracut",), depends="tiny-base"),
        service_package("libtiny", "1.0-1"),
        service_package("alpha-server", "1.0-1", depends="libtiny"),
        service_package("beta-server", "1.0-1", depends="libtiny"),
    ))  # fmt: skip


def service_package(name: str, version: str, *, depends: str = "", weight: int = 0) -> Deb:
    """A package with a file that differs between versions, of at least `weight` bytes."""
    files: dict[str, str | bytes] = {f"/usr/lib/{name}/version": f"{name} {version}\n"}
    if weight:
        # Other blocks in each version, and nothing that gzip could make smaller.
        files[f"/usr/lib/{name}/data"] = os.urandom(weight)
    return Deb(name, version, depends=depends, files=files)


def kernel_package(release: str, version: str) -> Deb:
    """A kernel of this release (`uname -r`) with one module."""
    made = kernel_files({"kernel/drivers/net/tiny.ko": {}}, release=release)
    files = {path: content for path, content in made.items() if isinstance(content, str | bytes)}
    return Deb(KERNEL, version, ARCHITECTURE, depends="dracut", files=files)


POSTINST = """\
#!/bin/sh
mkdir -p /proc /sys /dev /run /tmp /root /var/log
chmod 0600 /etc/shadow
"""


def base_package() -> Deb:
    """Everything a root needs to have packages installed: essential, one package, 15 MB."""
    programs = {f"/usr/bin/{name}": found(name) for name in PROGRAMS}
    programs["/usr/bin/sh"] = found("dash")
    programs["/usr/bin/busybox"] = found("busybox")
    programs |= {method: Path(method) for method in METHODS}
    needed = {os.fspath(in_usr(path)): path for path in libraries(programs.values())}
    files: dict[str, str | bytes] = {
        **{target: path.read_bytes() for target, path in {**programs, **needed}.items()},
        **{table: Path(table).read_bytes() for table in TABLES},
        "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "/etc/group": "root:x:0:\n",
        "/etc/shadow": "root:*:19000:0:99999:7:::\n",
        "/usr/lib/os-release": "ID=tiny\nNAME=Tiny\n",
        "/usr/sbin/.keep": "",
    }  # fmt: skip
    links = {f"/usr/bin/{name}": "busybox" for name in BUSYBOX}
    links |= {f"/{name}": f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
    links["/etc/os-release"] = "../usr/lib/os-release"
    return Deb(
        "tiny-base", "1.0-1", ARCHITECTURE, essential=True, files=files, links=links,
        programs=(*programs, *needed), fields={"Provides": "apt, dpkg"},
        scripts={"postinst": POSTINST},
    )  # fmt: skip


def found(program: str) -> Path:
    """A program of this host."""
    path = shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin")
    assert path is not None, f"{program} is not on this host"
    return Path(path).resolve()


def libraries(programs: Iterable[Path]) -> set[Path]:
    """The libraries that programs load, as ld.so(8) finds them; a static program has none."""
    said = run(["ldd", *sorted(set(programs))], check=False).stdout
    return {Path(match) for match in LIBRARY.findall(said)}


def in_usr(path: Path) -> Path:
    """Where a file is in a root with /usr merged."""
    return path if path.is_relative_to("/usr") else Path("/usr") / path.relative_to("/")
