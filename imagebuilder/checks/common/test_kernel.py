# SPDX-License-Identifier: Apache-2.0
"""Kernel, modules and initrd belong together, and the initrd has what a network root needs."""

from __future__ import annotations

import glob
import hashlib
import re
import shlex
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from testinfra.host import Host

from imagebuilder.checks.facts import Facts
from imagebuilder.checks.walk import walk
from imagebuilder.digest import digest_of_file
from imagebuilder.sandbox import INSIDE

MODULE = re.compile(r"\.ko(\.(xz|zst|gz))?$")
INDEXES = ("modules.dep", "modules.dep.bin", "modules.alias.bin", "modules.builtin")
# Of NICs that nodes boot from, where the kernel has them; as overlays/netboot puts them in.
NIC_DRIVERS = (
    "atlantic", "bnxt_en", "e1000", "e1000e", "i40e", "ice", "igb", "igc", "ixgbe", "mlx4_en",
    "mlx5_core", "r8152", "r8169", "tg3", "virtio_net",
)  # fmt: skip
ROOT_DRIVERS = ("erofs", "loop", "nfs", "nfsv3", "nfsv4", "overlay", "squashfs")
OURS = "imagebuilder"
# Where an archive in an initramfs may begin (buffer-format.rst of the kernel's documentation).
ALIGNED = 4
REBUILD = "build the image again; what changes the kernel must come before `initrd: true`"
UNREADABLE = re.compile(r"(?i)\b(error|premature|unexpected|truncated|not in gzip|corrupt)")
MOST = 3
AT_ONCE = 400  # paths that fit into one command


@dataclass(frozen=True)
class Initrd:
    """What lsinitrd(1) says: dracut's modules, the paths without a leading slash, complaints."""

    modules: tuple[str, ...]
    paths: frozenset[str]
    complaints: tuple[str, ...]

    def kernels(self) -> set[str]:
        """The releases whose modules it has."""
        matches = (re.match(r"(?:usr/)?lib/modules/([^/]+)/.", path) for path in self.paths)
        return {match[1] for match in matches if match}

    def drivers(self) -> set[str]:
        """The kernel modules in it, as the kernel spells names."""
        return {driver_of(path) for path in self.paths if MODULE.search(path)}


def driver_of(path: str) -> str:
    """The kernel's name of the module in a file."""
    return MODULE.sub("", path.rpartition("/")[2]).replace("-", "_")


@pytest.fixture(scope="session")
def initrd(host: Host, facts: Facts) -> Initrd:
    """The image's initrd."""
    if not facts.initrd:
        pytest.skip("the initrd is not at hand")
    said = host.run(f"lsinitrd {INSIDE / Path(facts.initrd).name}")
    modules = said.stdout.partition("dracut modules:")[2].partition("\n=")[0].split()
    rows = (line.split(maxsplit=8) for line in said.stdout.splitlines() if line[:1] in "-dl")
    paths = frozenset(row[8].partition(" -> ")[0] for row in rows if len(row) == 9)
    lines = [*said.stderr.splitlines(), *said.stdout.splitlines()[-5:]]
    complaints = tuple(line.strip() for line in lines if UNREADABLE.search(line))
    return Initrd(tuple(modules), paths, complaints)


@pytest.fixture(scope="session")
def modules(tree: Path, facts: Facts) -> frozenset[str]:
    """The modules of the image's kernel, as paths below its folder of modules."""
    folder = f"/usr/lib/modules/{facts.image.kernel.release}/"
    return frozenset(
        file.path.removeprefix(folder)
        for file in walk(tree, folder.rstrip("/"))
        if MODULE.search(file.path) and not file.is_link
    )


def builtin(tree: Path, facts: Facts) -> set[str]:
    """The drivers that are a part of the kernel itself."""
    path = tree / "usr/lib/modules" / facts.image.kernel.release / "modules.builtin"
    return {driver_of(line) for line in path.read_text().split()} if path.is_file() else set()


@pytest.mark.static
def test_there_is_one_kernel(tree: Path, facts: Facts) -> None:
    folder = tree / "usr/lib/modules"
    found = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if found != [facts.image.kernel.release]:
        pytest.fail(
            f"modules of {', '.join(found) or 'no kernel'} in /usr/lib/modules, the image boots "
            f"{facts.image.kernel.release}\n{REBUILD}"
        )


@pytest.mark.static
def test_modules_are_listed(tree: Path, facts: Facts, modules: frozenset[str]) -> None:
    folder = tree / "usr/lib/modules" / facts.image.kernel.release
    missing = [name for name in INDEXES if not (folder / name).is_file()]
    if missing:
        pytest.fail(
            f"{', '.join(missing)} missing in /usr/lib/modules/{facts.image.kernel.release}: depmod"
        )
    listed = {line.partition(":")[0] for line in (folder / "modules.dep").read_text().splitlines()}
    wrong = [f"{name} is not in modules.dep" for name in sorted(modules - listed)]
    wrong += [f"{name} is in modules.dep, but not there" for name in sorted(listed - modules)]
    if wrong:
        many = f" and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
        depmod = f"depmod {facts.image.kernel.release}"
        pytest.fail(f"{'; '.join(wrong[:MOST])}{many}\nrun {depmod} after the change")


@pytest.mark.static
def test_every_module_is_for_the_kernel(
    host: Host, tree: Path, facts: Facts, modules: frozenset[str]
) -> None:
    shipped = shipped_sums(tree, facts.image.kernel.release)
    strange = sorted(name for name in modules if md5_of(tree, facts, name) != shipped.get(name))
    told = (row for part in parts(strange) for row in ask_modinfo(host, facts, part))
    wrong = [
        f"{name} is for {said or 'none'}"
        for name, said in told
        if said != facts.image.kernel.release
    ]
    if wrong:
        many = f" and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
        pytest.fail(
            f"the kernel is {facts.image.kernel.release}, but {'; '.join(wrong[:MOST])}{many}\n"
            "a module must be built for the kernel of the image, not for the running one "
            "(dkms -k, make KERNELRELEASE=)"
        )


def shipped_sums(tree: Path, kernel: str) -> dict[str, str]:
    """The MD5 of each module in the kernel's own packages, which are for that kernel.

    To unpack thousands of modules, as modinfo(8) does, takes many times as long.
    """
    found: dict[str, str] = {}
    for sums in (tree / "var/lib/dpkg/info").glob(f"linux-*{glob.escape(kernel)}*.md5sums"):
        for line in sums.read_text().splitlines():
            digest, _, path = line.partition("  ")
            found[path.partition(f"lib/modules/{kernel}/")[2]] = digest
    return found


def md5_of(tree: Path, facts: Facts, name: str) -> str:
    """The MD5 of one module."""
    path = tree / "usr/lib/modules" / facts.image.kernel.release / name
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """The names in pieces that fit into a command."""
    for start in range(0, len(names), AT_ONCE):
        yield names[start : start + AT_ONCE]


def ask_modinfo(host: Host, facts: Facts, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The kernel that each module says it is for; nothing for one that says none."""
    words = " ".join(shlex.quote(name) for name in names)
    asking = f'for m in {words}; do echo "$m $(modinfo -F vermagic "$m" 2> /dev/null)"; done'
    said = host.run(f"cd /usr/lib/modules/{facts.image.kernel.release} && {asking}")
    for line in said.stdout.splitlines():
        name, _, vermagic = line.partition(" ")
        yield name, vermagic.partition(" ")[0]


@pytest.mark.static
def test_kernel_is_the_one_of_the_modules(facts: Facts) -> None:
    if not facts.vmlinuz:
        pytest.skip("the kernel is not at hand")
    with Path(facts.vmlinuz).open("rb") as stream:
        head = stream.read(0x10000)
    # Documentation/arch/x86/boot.rst: "HdrS", and a pointer to the version less 0x200.
    if head[0x202:0x206] != b"HdrS":
        pytest.fail("vmlinuz is not a bzImage: its header is damaged or of another processor")
    start = struct.unpack_from("<H", head, 0x20E)[0] + 0x200
    release = head[start : start + 256].split(b"\0")[0].split(b" ")[0].decode(errors="replace")
    if release != facts.image.kernel.release:
        pytest.fail(
            f"vmlinuz is {release}, the modules are for {facts.image.kernel.release}\n{REBUILD}"
        )


@pytest.mark.static
def test_kernel_and_initrd_are_those_of_the_manifest(facts: Facts) -> None:
    pairs = (
        (facts.vmlinuz, facts.image.kernel.vmlinuz.sha256),
        (facts.initrd, facts.image.kernel.initrd.sha256),
    )
    if not all(path for path, _ in pairs):
        pytest.skip("kernel and initrd are not at hand")
    wrong = [Path(path).name for path, digest in pairs if digest_of_file(Path(path)) != digest]
    if wrong:
        pytest.fail(f"{' and '.join(wrong)}: not the bytes that the manifest names")


@pytest.mark.static
def test_initrd_can_be_read(initrd: Initrd) -> None:
    if initrd.complaints or not initrd.paths:
        said = initrd.complaints[0] if initrd.complaints else "it lists no file"
        pytest.fail(f"the initrd cannot be read: {said}\n{REBUILD}")


@pytest.mark.static
def test_what_follows_the_initrd_is_found(facts: Facts) -> None:
    if not facts.initrd:
        pytest.skip("the initrd is not at hand")
    size = Path(facts.initrd).stat().st_size
    if size % ALIGNED:
        pytest.fail(
            f"the initrd has {size} bytes, no multiple of {ALIGNED}: the kernel would not find the "
            f"node's own files behind it\n{REBUILD}"
        )


@pytest.mark.static
def test_initrd_is_for_the_kernel(initrd: Initrd, facts: Facts) -> None:
    found = initrd.kernels()
    if found != {facts.image.kernel.release}:
        said = ", ".join(sorted(found)) or "no kernel"
        boots = facts.image.kernel.release
        pytest.fail(f"the initrd has modules of {said}, the image boots {boots}\n{REBUILD}")


@pytest.mark.static
def test_initrd_has_an_init(initrd: Initrd) -> None:
    if "init" not in initrd.paths:
        said = ", ".join(initrd.modules) or "none"
        pytest.fail(
            f"the initrd has no /init: the kernel starts nothing (dracut's modules in it: {said})\n"
            "add dracut's module base to dracutmodules in a file of /usr/lib/dracut/dracut.conf.d"
        )


@pytest.mark.static
def test_initrd_has_the_network_root(initrd: Initrd) -> None:
    if OURS not in initrd.modules:
        said = ", ".join(initrd.modules) or "none"
        pytest.fail(
            f"dracut's module {OURS} is not in the initrd (it has: {said})\n"
            "the overlay netboot brings it: list it before the overlay that says `initrd: true`"
        )


@pytest.mark.static
def test_initrd_has_the_drivers(
    tree: Path, facts: Facts, initrd: Initrd, modules: frozenset[str]
) -> None:
    there = {driver_of(path) for path in modules}
    wanted = {name for name in (*NIC_DRIVERS, *ROOT_DRIVERS) if name in there}
    missing = sorted(wanted - initrd.drivers() - builtin(tree, facts))
    if missing:
        pytest.fail(
            f"not in the initrd: {', '.join(missing)}\nnodes that need them do not get their root: "
            "dracut's module kernel-network-modules in the overlay netboot lists drivers"
        )


@pytest.mark.static
def test_initrd_has_the_firmware_of_its_nics(host: Host, facts: Facts, initrd: Initrd) -> None:
    drivers = " ".join(sorted(initrd.drivers() & set(NIC_DRIVERS)))
    script = f"for d in {drivers}; do modinfo -k {facts.image.kernel.release} -F firmware $d; done"
    named = sorted(set(host.run(script).stdout.split()))
    finding = f"cd /usr/lib/firmware && ls -d {' '.join(f'{n} {n}.xz {n}.zst' for n in named)}"
    there = host.run(f"{finding} 2> /dev/null").stdout.split() if named else []
    inside = {path.partition("lib/firmware/")[2] for path in initrd.paths}
    bare = {re.sub(r"\.(xz|zst)$", "", path) for path in inside}
    missing = [path for path in there if re.sub(r"\.(xz|zst)$", "", path) not in bare]
    if missing:
        some = ", ".join(missing[:MOST])
        pytest.fail(f"firmware of NICs is not in the initrd: {some}\n{REBUILD}")
