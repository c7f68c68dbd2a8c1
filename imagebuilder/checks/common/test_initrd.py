# SPDX-License-Identifier: Apache-2.0
"""The initrd can be unpacked, its programs run, and it loads drivers of the NIC and the root."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
from testinfra.host import Host

from imagebuilder.bootfiles import EARLY, INITRD
from imagebuilder.checks.common.test_kernel import MOST, REBUILD
from imagebuilder.checks.facts import Facts
from imagebuilder.checks.initrd import (
    MODULE,
    NIC_DRIVERS,
    ROOT_DRIVERS,
    Initrd,
    driver_of,
    read_initrd,
)
from imagebuilder.checks.traversal import walk
from imagebuilder.cpio import ALIGNED
from imagebuilder.root import Root
from imagebuilder.secret import find_secrets

OURS = "imagebuilder"
OUR_MODULE = "usr/lib/dracut/modules.d/99imagebuilder"
# Files without passwords, where names are not settings.
ACCOUNTS = ("etc/passwd", "etc/group", "etc/nsswitch.conf")
PROGRAMS = ("busybox", "losetup", "modprobe", "mount", "mount.nfs", "mount.nfs4", "udevadm")
MICROCODE = {"amd64-microcode": "AuthenticAMD.bin", "intel-microcode": "GenuineIntel.bin"}
UNLIST = "remove that line of modprobe.d from what dracut installs, then rebuild the initrd"


@pytest.fixture(scope="session")
def unpacked(host: Host, facts: Facts) -> Initrd:
    """The image's initrd, as far as it can be unpacked."""
    if not facts.initrd:
        pytest.skip("the initrd is not available")
    return read_initrd(host, facts)


@pytest.fixture(scope="session")
def initrd(unpacked: Initrd) -> Initrd:
    """The initrd, if it could be unpacked completely; otherwise another check fails."""
    if unpacked.complaints or not unpacked.paths:
        pytest.skip("the initrd cannot be read")
    return unpacked


@pytest.fixture(scope="session")
def whole(initrd: Initrd, facts: Facts) -> Initrd:
    """The initrd, if it has an init and is for the kernel; otherwise other checks fail."""
    if "init" not in initrd.paths or initrd.kernels() != {facts.image.kernel.release}:
        pytest.skip("the initrd is incomplete")
    return initrd


def builtin(tree: Path, facts: Facts) -> set[str]:
    """The drivers that are built into the kernel."""
    listed = f"/usr/lib/modules/{facts.image.kernel.release}/modules.builtin"
    return {driver_of(line) for line in Root(tree).text(listed).split()}


@pytest.mark.static
def test_initrd_can_be_read(unpacked: Initrd) -> None:
    if unpacked.complaints or not unpacked.paths:
        said = unpacked.complaints[0] if unpacked.complaints else "it lists no file"
        pytest.fail(f"the initrd cannot be read: {said}\n{REBUILD}")


@pytest.mark.static
def test_what_follows_the_initrd_is_found(facts: Facts) -> None:
    if not facts.initrd:
        pytest.skip("the initrd is not available")
    behind = {EARLY: "the initrd", INITRD: "the node's own files"}
    for path in facts.initrds:
        size = path.stat().st_size
        if size % ALIGNED:
            pytest.fail(
                f"{path.name} has {size} bytes, not a multiple of {ALIGNED}: the kernel would not "
                f"find {behind[path.name]} behind it\n{REBUILD}"
            )


@pytest.mark.static
def test_initrd_is_for_the_kernel(initrd: Initrd, facts: Facts) -> None:
    found = initrd.kernels()
    if found != {facts.image.kernel.release}:
        said = ", ".join(sorted(found)) or "no kernel"
        boots = facts.image.kernel.release
        pytest.fail(f"the initrd has modules of {said}, but the image boots {boots}\n{REBUILD}")


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
            "the overlay netboot contains it: list it before the overlay with `initrd: true`"
        )


@pytest.mark.static
def test_initrd_has_the_drivers(tree: Path, facts: Facts, initrd: Initrd) -> None:
    folder = f"/usr/lib/modules/{facts.image.kernel.release}"
    there = {driver_of(file.path) for file in walk(tree, folder) if MODULE.search(file.path)}
    wanted = {name for name in (*NIC_DRIVERS, *ROOT_DRIVERS) if name in there}
    missing = sorted(wanted - initrd.drivers() - builtin(tree, facts))
    if missing:
        pytest.fail(
            f"not in the initrd: {', '.join(missing)}\nnodes that need them cannot load their "
            "root: dracut's module kernel-network-modules in the overlay netboot lists drivers"
        )


@pytest.mark.static
def test_initrd_has_the_firmware_of_its_nics(host: Host, facts: Facts, initrd: Initrd) -> None:
    drivers = " ".join(sorted(initrd.drivers() & set(NIC_DRIVERS)))
    script = f"modinfo -k {facts.image.kernel.release} -F firmware {drivers}"
    named = sorted(set(host.run(script).stdout.split()))
    finding = f"cd /usr/lib/firmware && ls -d {' '.join(f'{n} {n}.xz {n}.zst' for n in named)}"
    there = host.run(f"{finding} 2> /dev/null").stdout.split() if named else []
    inside = {path.partition("lib/firmware/")[2] for path in initrd.paths}
    bare = {re.sub(r"\.(xz|zst)$", "", path) for path in inside}
    missing = [path for path in there if re.sub(r"\.(xz|zst)$", "", path) not in bare]
    if missing:
        some = ", ".join(missing[:MOST])
        pytest.fail(f"firmware of NICs is not in the initrd: {some}\n{REBUILD}")


@pytest.mark.static
def test_initrd_has_the_microcode(facts: Facts, initrd: Initrd) -> None:
    packages = {package.name for package in facts.image.packages}
    there = {path.rpartition("/")[2] for path in initrd.paths if "/microcode/" in path}
    missing = [file for name, file in MICROCODE.items() if name in packages and file not in there]
    if missing:
        where = EARLY if facts.early else "the initrd"
        pytest.fail(
            f"{', '.join(missing)} is not in {where}, although the package of the microcode is "
            'installed\nset early_microcode="yes" in a file of /usr/lib/dracut/dracut.conf.d'
        )


@pytest.mark.static
def test_initrd_loads_what_the_root_would(whole: Initrd) -> None:
    wanted, loaded = (
        {driver_of(line.split()[1]) for line in whole[name] if line.startswith("insmod ")}
        for name in ("root", "initrd")
    )
    instead = [line for line in whole["initrd"] if line.startswith("install ")]
    # kmod prints what the index names, even if it does not exist.
    missing = sorted(wanted - (loaded & whole.drivers()))
    if instead:
        pytest.fail(
            f"modprobe in the initrd runs `{instead[0].removeprefix('install ').strip()}` instead "
            f"of loading a driver; not loaded: {', '.join(missing) or 'nothing else'}\n"
            f"{UNLIST}"
        )
    lists = whole.blacklists()
    if kept_off := [name for name in missing if name in lists]:
        pytest.fail(
            f"{lists[kept_off[0]]} of the initrd blacklists {', '.join(kept_off)}, which the root "
            f"loads: a node that needs it has no network or no root\n{UNLIST}"
        )
    if missing:
        pytest.fail(
            f"drivers of NICs and of the root load {', '.join(missing)} in the root, but not in "
            "the initrd\ndracut's module kernel-network-modules in the overlay netboot lists them"
        )


@pytest.mark.static
def test_initrd_programs_have_their_libraries(whole: Initrd) -> None:
    lacking = [line.split() for line in whole["lacking"]]
    if lacking:
        libraries = sorted({words[1] for words in lacking})
        programs = ", ".join(f"/{words[0]}" for words in lacking[:3])
        pytest.fail(
            f"{', '.join(libraries)} is not in the initrd; {programs} cannot start\n"
            "rebuild the initrd; inst_multiple of a dracut module adds a program's libraries"
        )


@pytest.mark.static
def test_initrd_has_its_programs(whole: Initrd) -> None:
    names = {posixpath.basename(path) for path in whole.paths}
    missing = [name for name in PROGRAMS if name not in names]
    if missing:
        pytest.fail(
            f"{', '.join(missing)} is not in the initrd: a node cannot mount its root\n"
            "add it to inst_multiple of the module 99imagebuilder, then rebuild the initrd"
        )


@pytest.mark.static
def test_initrd_has_our_hooks(tree: Path, whole: Initrd) -> None:
    paths = whole.paths
    ours = [path.stem for path in (tree / OUR_MODULE).glob("*.sh") if path.stem != "module-setup"]
    missing = [stem for stem in ours if not any(stem in posixpath.basename(p) for p in paths)]
    if missing:
        names = ", ".join(sorted(missing))
        pytest.fail(f"not in the initrd: {names} of /{OUR_MODULE}\n{REBUILD}")


@pytest.mark.static
def test_initrd_scripts_are_executable(whole: Initrd) -> None:
    found = whole["modes"]
    if found:
        pytest.fail(
            f"not executable in the initrd: {', '.join(found[:3])}\n"
            "set mode 0755 for the file of the dracut module"
        )


@pytest.mark.static
def test_initrd_scripts_have_their_interpreter(whole: Initrd) -> None:
    found = [line.partition(":#!")[::2] for line in whole["interpreters"]]
    wrong = [
        f"{path} ({interpreter.strip()})"
        for path, interpreter in found
        if not {place := interpreter.strip().lstrip("/"), f"usr/{place}"} & whole.paths
    ]
    if wrong:
        pytest.fail(
            f"the interpreter of a script is not in the initrd: {', '.join(wrong[:3])}\n"
            "install it (inst_multiple); ? is a carriage return: save the file with lines that end "
            "in LF, and set text eol=lf for it in .gitattributes"
        )


@pytest.mark.static
def test_initrd_loads_drivers_for_devices(whole: Initrd) -> None:
    if not whole["loading"]:
        pytest.fail(
            "no udev rule in the initrd loads drivers (80-drivers.rules of udev does): no NIC "
            f"appears\n{REBUILD}"
        )


@pytest.mark.static
def test_initrd_has_the_users_of_its_services(tree: Path, whole: Initrd) -> None:
    listed = Root(tree).text("/etc/passwd").splitlines()
    in_root = {line.partition(":")[0] for line in listed}
    users = [line.split() for line in whole["users"] if len(line.split()) == 2]
    wanted = {posixpath.basename(path) for path in whole.paths if ".wants/" in path}
    missing = sorted({f"{user} of {unit}" for unit, user in users if unit in wanted
                      and user in in_root and user not in whole["accounts"]})  # fmt: skip
    if missing:
        pytest.fail(
            f"not in /etc/passwd of the initrd: {', '.join(missing[:3])}; the service does not "
            f"start there (217/USER)\n{REBUILD}"
        )


@pytest.mark.static
def test_initrd_has_no_private_key(whole: Initrd) -> None:
    found = whole["keys"]
    if found:
        pytest.fail(
            f"a private key in the initrd: {', '.join(found[:3])}\n"
            "every node gets it over the network, unencrypted: remove it from what dracut installs"
        )


@pytest.mark.static
def test_initrd_has_no_secret(whole: Initrd) -> None:
    found: dict[str, None] = {}
    for path, number, line in (line.split(":", 2) for line in whole["secrets"] if line[0] != "/"):
        kinds = (one.kind for one in find_secrets(line) if one.kind != "private key")
        if path not in ACCOUNTS:
            found.update(dict.fromkeys(f"{kind} in {path}:{number}" for kind in kinds))
    if found:
        pytest.fail(
            f"in the initrd: {', '.join(list(found)[:3])}\n"
            "every node gets it over the network, unencrypted: remove it from what dracut installs"
        )
