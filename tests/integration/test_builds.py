# SPDX-License-Identifier: Apache-2.0
"""A build in a tree that is thrown away, in a tiny root: what lands, and every way it fails."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import InputError, WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.families.protocol import Packages
from imagebuilder.lock.types import LockedBuild, LockedFile, LockedPackage, LockedSourcePackage
from imagebuilder.lock.verified import Pool
from imagebuilder.process import run
from imagebuilder.recipe.types import Script
from imagebuilder.steps.build import BuildStep, check_headers
from imagebuilder.steps.signing import CERTIFICATE, MAGIC
from imagebuilder.steps.step import StepWorkspace
from imagebuilder.store.upper import settle, walk
from tests.unit.steps.test_signing import make_signing

pytestmark = pytest.mark.root

KERNEL = "7.2.12+deb14-amd64"
NOTHING = LockedBuild("modules", (), (), (), ())
# What says which kernel the image has; the real ones want a database of real packages.
DPKG_QUERY = '#!/bin/sh\necho "linux-image-amd64 linux-image-real"\necho "linux-image-real"\n'
DPKG = f"#!/bin/sh\necho /boot/vmlinuz-{KERNEL}\n"
# dpkg-source is a Perl program; this one unpacks the same archive to the same place.
DPKG_SOURCE = '#!/bin/sh\nset -eu\nmkdir "$3"\ntar -xf "${2%.dsc}.tar" -C "$3"\n'
DEPMOD = "#!/bin/sh\n: > /lib/modules/$2/modules.dep\n"
GCC = "#!/bin/sh\necho 'gcc (Tiny 14.2.0-19) 14.2.0'\n"


@pytest.fixture
def tiny(busybox: Path, tmp_path: Path) -> StepWorkspace:
    """A root of busybox, a shell and GNU tar, with what stands in for dpkg, gcc and kmod."""
    root = busybox / "c"
    for name in ("sh", "tar", "realpath"):  # busybox's shell would run its own tar
        add_program(root, name)
    (root / "usr/bin/sort").symlink_to("busybox")
    for name, text in {
        "dpkg-query": DPKG_QUERY, "dpkg": DPKG, "dpkg-source": DPKG_SOURCE, "gcc": GCC,
        "depmod": DEPMOD,
    }.items():  # fmt: skip
        (root / "usr/bin" / name).write_text(text)
        (root / "usr/bin" / name).chmod(0o755)
    (root / f"usr/lib/modules/{KERNEL}").mkdir(parents=True)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        (root / f"usr/lib/modules/{KERNEL}/{name}").touch()
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    (busybox / "u1").mkdir()
    return StepWorkspace(
        busybox,
        ("c",),
        "u1",
        1_790_000_000,
        tmp_path / "log",
        Pool(tmp_path / "debs", tmp_path),
        family=APT,
    )


def add_program(root: Path, name: str) -> None:
    """Copy a program of this host into `root`, with the libraries it needs."""
    found = shutil.which(name)
    assert found, f"{name} is not on this host"
    target = root / "usr/bin" / name
    target.unlink(missing_ok=True)  # busybox has one of that name
    shutil.copyfile(found, target)
    target.chmod(0o755)
    for library in re.findall(r"(/\S+) \(0x", run(["ldd", found]).stdout):
        place = root / library.lstrip("/").replace("lib", "usr/lib", not library.startswith("/usr"))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, place)
        place.chmod(0o755)
    for name in ("lib", "lib64"):
        if not (root / name).exists():
            (root / "usr" / name).mkdir(exist_ok=True)
            (root / name).symlink_to(f"usr/{name}")


def step(folder: Path, program: str, locked: LockedBuild = NOTHING) -> BuildStep:
    """A build that runs `program`."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\nset -eu\n{program}")
    script = Script("builds/modules", digest_of_bytes(path.read_bytes()), path)
    return BuildStep(
        overlay="gpu",
        family=APT,
        tools=Packages("test", "amd64", locked.packages, (), 1_790_000_000),
        kernel="linux-image-amd64",
        locked=locked,
        script=script,
        environment=(("TARGET", "sm_89"),),
        python=None,
        epoch=1_790_000_000,
    )


def landed(workspace: StepWorkspace) -> list[str]:
    """The files of the layer."""
    settle(workspace.tree, [])
    found = (path for path, _ in walk(workspace.tree) if path.is_symlink() or path.is_file())
    return sorted(os.fspath(path.relative_to(workspace.tree)) for path in found)


def test_only_what_is_installed_becomes_the_layer(tiny: StepWorkspace, tmp_path: Path) -> None:
    program = (
        'echo "$TARGET" > /usr/bin/compiler\n'
        "mkdir -p /var/lib/dkms && touch /var/lib/dkms/mok.key\n"
        'target="$DESTDIR/lib/modules/$KERNEL/updates"; mkdir -p "$target"\n'
        'echo module > "$target/gpu.conf"; ln -s gpu.conf "$target/link.conf"\n'
        "[ ! -e /sys/class/net/eth0 ]\n"
    )
    step(tmp_path, program).apply(tiny)
    files = landed(tiny)
    modules = f"usr/lib/modules/{KERNEL}"
    assert {f"{modules}/updates/gpu.conf", f"{modules}/updates/link.conf"} <= set(files)
    assert f"{modules}/modules.dep" in files  # depmod(8) ran for what has landed
    assert all(file.startswith(f"{modules}/") for file in files)
    assert not (tiny.work / "u1.tools").exists()


def test_sources_are_unpacked_where_the_program_finds_them(
    tiny: StepWorkspace, tmp_path: Path
) -> None:
    (tmp_path / "hello.c").write_text("int x;\n")
    run(["tar", "-cf", tmp_path / "a.tar", "-C", tmp_path, "hello.c"])
    contents = {"hello_1.dsc": b"Format: 1.0\n", "hello_1.tar": (tmp_path / "a.tar").read_bytes()}
    tiny.pool.packages.mkdir()
    files = []
    for name, content in contents.items():
        sha256 = digest_of_bytes(content)
        (tiny.pool.packages / f"{sha256}.src").write_bytes(content)
        files.append(LockedFile(name, sha256, len(content), f"pool/{name}"))
    source = LockedSourcePackage("hello", "1", tuple(files), "debian")
    program = (
        'mkdir -p "$DESTDIR/usr/share" && cat "$SOURCE"/hello/hello.c > "$DESTDIR/usr/share/x"\n'
    )
    locked = replace(NOTHING, source_packages=(source,))
    step(tmp_path, f"SOURCE=/run/imagebuilder/source\n{program}", locked).apply(tiny)
    assert landed(tiny) == ["usr/share/x"]
    assert (tiny.tree / "usr/share/x").read_text() == "int x;\n"


def test_modules_are_signed_with_the_key_of_the_site_and_no_other(
    tiny: StepWorkspace, tmp_path: Path
) -> None:
    (tiny.work / "c/usr/bin/find").symlink_to("busybox")
    program = (
        "grep -qx sign_file=/nonexistent /etc/dkms/framework.conf.d/unsigned.conf\n"
        'target="$DESTDIR/usr/lib/modules/$KERNEL/updates"; mkdir -p "$target"\n'
        'printf module > "$target/nic.ko"\n'
    )
    signing = make_signing(tmp_path)
    replace(step(tmp_path, program), signing=signing).apply(tiny)
    module = f"usr/lib/modules/{KERNEL}/updates/nic.ko"
    assert {module, CERTIFICATE} <= set(landed(tiny))
    content = (tiny.tree / module).read_bytes()
    assert content.startswith(b"module0")  # a CMS signature is a DER sequence, tag 0x30
    assert content.endswith(MAGIC)
    key = signing.key.read_bytes()
    assert not any(p.is_file() and key in p.read_bytes() for p in tiny.tree.rglob("*"))


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("true\n", "the build installed nothing below"),
        (
            'mkdir -p "$DESTDIR/usr/lib/modules/$(uname -r)/updates"\n'
            'touch "$DESTDIR/usr/lib/modules/$(uname -r)/updates/gpu.ko"\n',
            rf"left modules for \S+, but the image's kernel is {re.escape(KERNEL)}",
        ),
        ('mkdir "$DESTDIR/run" && touch "$DESTDIR/run/y"\n', "would not be part of the root"),
        ("echo no such header >&2\nexit 3\n", r"(?s)exit status 3.*no such header"),
        (
            "log=/var/lib/dkms/gpu-open/1.0/build\nmkdir -p $log\n"
            "echo \"a.c:7:9: error: too few arguments\" > $log/make.log\n"
            "echo 'make: *** [all] Error 2' >> $log/make.log\nexit 10\n",
            rf"DKMS cannot build gpu-open 1\.0 for kernel {re.escape(KERNEL)} with gcc \(Tiny 14"
            r"\.2\.0-19\) 14\.2\.0\n    a\.c:7:9: error: too few arguments\n"
            r"  hint: the driver does not support this kernel",
        ),
    ],
    ids=["nothing", "uname", "lost", "fails", "dkms"],
)  # fmt: skip
def test_a_build_that_fails_says_why(
    tiny: StepWorkspace, tmp_path: Path, program: str, what: str
) -> None:
    (tiny.work / "c/usr/bin/uname").symlink_to("busybox")
    with pytest.raises(WorkError, match=what):
        step(tmp_path, program).apply(tiny)


def test_headers_of_another_kernel_are_seen_before_anything_is_compiled(
    tiny: StepWorkspace,
) -> None:
    package = LockedPackage("linux-headers-6.1-amd64", "6.1", "amd64", "a" * 64, 1, "p", "debian")
    with pytest.raises(WorkError, match=rf"{re.escape(KERNEL)}, and linux-headers-6\.1-amd64 has"):
        check_headers(tiny, KERNEL, (package,))
    (tiny.work / f"c/usr/lib/modules/{KERNEL}/build/include").mkdir(parents=True)
    check_headers(tiny, KERNEL, (package,))


def test_a_root_without_the_kernel_is_refused(tiny: StepWorkspace, tmp_path: Path) -> None:
    (tiny.work / "c/usr/bin/dpkg").write_text("#!/bin/sh\n")
    with pytest.raises(InputError, match="installs 0 kernels"):
        step(tmp_path, "true\n").apply(tiny)
