# SPDX-License-Identifier: Apache-2.0
"""The kernel, its modules and the initrd of the image match."""

from __future__ import annotations

import shlex
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from testinfra.host import Host

from imagebuilder.checks.facts import Facts
from imagebuilder.checks.initrd import MODULE, driver_of
from imagebuilder.checks.traversal import walk
from imagebuilder.digest import digest_of_file
from imagebuilder.families.registry import family_of_distribution
from imagebuilder.families.shipped import Checksum, checksums_of
from imagebuilder.phrases import list_first
from imagebuilder.root import Root

INDEXES = ("modules.dep", "modules.dep.bin", "modules.alias.bin", "modules.builtin")
REBUILD = "rebuild the image; whatever changes the kernel must come before `initrd: true`"
MOST = 3
AT_ONCE = 400  # paths that fit into one command


@pytest.fixture(scope="session")
def modules(tree: Path, facts: Facts) -> frozenset[str]:
    """The modules of the image's kernel, as paths below its folder of modules."""
    folder = f"/usr/lib/modules/{facts.image.kernel.release}/"
    return frozenset(
        file.path.removeprefix(folder)
        for file in walk(tree, folder.rstrip("/"))
        if MODULE.search(file.path) and not file.is_link
    )


@pytest.mark.static
def test_there_is_one_kernel(tree: Path, facts: Facts) -> None:
    folder = tree / "usr/lib/modules"
    found = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if found != [facts.image.kernel.release]:
        pytest.fail(
            f"modules of {', '.join(found) or 'no kernel'} in /usr/lib/modules, but the image "
            f"boots {facts.image.kernel.release}\n{REBUILD}"
        )


@pytest.mark.static
def test_modules_are_listed(tree: Path, facts: Facts, modules: frozenset[str]) -> None:
    folder = tree / "usr/lib/modules" / facts.image.kernel.release
    missing = [name for name in INDEXES if not (folder / name).is_file()]
    if missing:
        pytest.fail(
            f"{', '.join(missing)} missing in /usr/lib/modules/{facts.image.kernel.release}: "
            "run depmod"
        )
    text = Root(tree).text(f"/usr/lib/modules/{facts.image.kernel.release}/modules.dep")
    listed = {line.partition(":")[0] for line in text.splitlines()}
    # depmod leaves out a module of the kernel's tree that one in updates/ replaces.
    chosen = {driver_of(name) for name in listed}
    unknown = sorted(name for name in modules - listed if driver_of(name) not in chosen)
    wrong = [f"{name} is not in modules.dep" for name in unknown]
    wrong += [f"{name} is in modules.dep, but missing" for name in sorted(listed - modules)]
    if wrong:
        depmod = f"depmod {facts.image.kernel.release}"
        pytest.fail(f"{list_first(wrong, MOST, '; ')}\nrun {depmod} after the change")


@pytest.mark.static
def test_every_module_is_for_the_kernel(
    host: Host, tree: Path, facts: Facts, modules: frozenset[str]
) -> None:
    folder = f"/usr/lib/modules/{facts.image.kernel.release}"
    shipped = kernel_sums(tree, facts)
    # Unpacking thousands of modules, as modinfo(8) does, takes many times as long.
    strange = sorted(
        name
        for name in modules
        if not (sums := shipped.get(f"{folder}/{name}")) or not sums.is_of(tree / folder[1:] / name)
    )
    rows = (row for part in parts(strange) for row in ask_modinfo(host, facts, part))
    wrong = [
        f"{name} is for {release or 'none'}"
        for name, release in rows
        if release != facts.image.kernel.release
    ]
    if wrong:
        pytest.fail(
            f"the kernel is {facts.image.kernel.release}, but {list_first(wrong, MOST, '; ')}\n"
            "a module must be built for the kernel of the image, not for the running one "
            "(dkms -k, make KERNELRELEASE=)"
        )


def kernel_sums(tree: Path, facts: Facts) -> dict[str, Checksum]:
    """The checksum of each file in the kernel's own packages, which are for that kernel."""
    family = family_of_distribution(facts.image.distribution)
    release = facts.image.kernel.release
    shipped = family.shipped_files(Root(tree))
    return checksums_of(shipped, lambda name: family.is_kernel_package(name, release))


def parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """The names in chunks that fit into a command."""
    for start in range(0, len(names), AT_ONCE):
        yield names[start : start + AT_ONCE]


def ask_modinfo(host: Host, facts: Facts, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The kernel release that each module is for, "" if it has none."""
    words = " ".join(shlex.quote(name) for name in names)
    loop = f'for m in {words}; do echo "$m $(modinfo -F vermagic "$m" 2> /dev/null)"; done'
    done = host.run(f"cd /usr/lib/modules/{facts.image.kernel.release} && {loop}")
    for line in done.stdout.splitlines():
        name, _, vermagic = line.partition(" ")
        yield name, vermagic.partition(" ")[0]


@pytest.mark.static
def test_kernel_is_the_one_of_the_modules(facts: Facts) -> None:
    if not facts.vmlinuz:
        pytest.skip("the kernel is not available")
    with Path(facts.vmlinuz).open("rb") as stream:
        head = stream.read(0x10000)
    # Documentation/arch/x86/boot.rst: "HdrS", and a pointer to the version less 0x200.
    if head[0x202:0x206] != b"HdrS":
        pytest.fail("vmlinuz is not a bzImage: its header is damaged or of another processor")
    start = struct.unpack_from("<H", head, 0x20E)[0] + 0x200
    release = head[start : start + 256].split(b"\0")[0].split(b" ")[0].decode(errors="replace")
    if release != facts.image.kernel.release:
        pytest.fail(
            f"vmlinuz is {release}, but the modules are for {facts.image.kernel.release}\n{REBUILD}"
        )


@pytest.mark.static
def test_kernel_and_initrd_are_those_of_the_manifest(facts: Facts) -> None:
    if not facts.vmlinuz or not facts.initrd:
        pytest.skip("kernel and initrd are not available")
    found = {path.name: digest_of_file(path) for path in facts.boot_files}
    wrong = [name for name, digest in facts.image.sums.items() if found.get(name) != digest]
    if wrong:
        pytest.fail(f"{' and '.join(wrong)}: the content does not match the manifest")
