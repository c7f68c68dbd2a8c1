# SPDX-License-Identifier: Apache-2.0
"""The initrd can be unpacked, its programs run, and it loads drivers of the NIC and the root."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard
from testinfra.host import Host

from imagebuilder.bootfiles import EARLY, INITRD
from imagebuilder.checks.common.test_kernel import MODULE, MOST, REBUILD, driver_of
from imagebuilder.checks.facts import Facts
from imagebuilder.checks.traversal import walk
from imagebuilder.cpio import ALIGNED, measure_archives
from imagebuilder.sandbox import INSIDE
from imagebuilder.secret import find_secrets

OURS = "imagebuilder"
OUR_MODULE = "usr/lib/dracut/modules.d/99imagebuilder"
PLACE = "/tmp/initrd"
# Drivers of NICs that nodes boot from, if the kernel has them; as in overlays/netboot.
NIC_DRIVERS = (
    "atlantic", "bnxt_en", "e1000", "e1000e", "i40e", "ice", "igb", "igc", "ixgbe", "mlx4_en",
    "mlx5_core", "r8152", "r8169", "tg3", "virtio_net",
)  # fmt: skip
ROOT_DRIVERS = ("erofs", "loop", "nfs", "nfsv3", "nfsv4", "overlay", "squashfs")
# Lines that imagebuilder.secret checks.
HINTS = "pass|pwd|psk|secret|token|key|auth|cred|://"
DRIVERS = " ".join((*NIC_DRIVERS, *ROOT_DRIVERS))
# Files without passwords, where names are not settings.
ACCOUNTS = ("etc/passwd", "etc/group", "etc/nsswitch.conf")
PROGRAMS = ("busybox", "losetup", "modprobe", "mount", "mount.nfs", "mount.nfs4", "udevadm")
MICROCODE = {"amd64-microcode": "AuthenticAMD.bin", "intel-microcode": "GenuineIntel.bin"}
# zstd makes up to 32,000 bytes of one: of a block at most 32 MB, which a node has in any case.
BLOCK = 1 << 10
MOST_UNPACKED = 2 << 30
UNREADABLE = re.compile(r"(?i)\b(error|premature|unexpected|truncated|not in gzip|corrupt)")
# One command, because lsinitrd(1) takes a second.  The first archive has the processors' microcode
# and no compression.  kmod of the root reads the indexes and the configuration of the initrd, the
# loader of the initrd its libraries.
TELL = f"""\
say() {{ echo "== $1"; }}
loads() {{ "$@" -S "$kernel" -a -q --show-depends {DRIVERS} 2> /dev/null; }}
rm -rf {PLACE}; mkdir {PLACE}; cd {PLACE}
cat $files > {PLACE}.img
lsinitrd --unpack {PLACE}.img > /dev/null 2> {PLACE}.said
say complaints; tail -5 {PLACE}.said
say paths; find . -type f -o -type l | sed 's/..//'
cpio --quiet -t < {PLACE}.img 2> /dev/null
say modules; cat usr/lib/dracut/modules.txt 2> /dev/null || cat lib/dracut/modules.txt
say root; loads modprobe
say initrd; loads modprobe -d . -C etc/modprobe.d -C usr/lib/modprobe.d
say lacking
for program in usr/bin/* usr/sbin/* usr/lib/systemd/systemd*; do
    [ -f "$program" ] && [ ! -L "$program" ] || continue
    for loader in lib64/ld-linux-x86-64.so.2 lib/ld-linux-aarch64.so.1; do
        [ ! -e "$loader" ] || chroot . "/$loader" --list "/$program" 2>&1 | sed -n \
            -e "s,^\\s*\\(.*\\) => not found,$program \\1,p" \
            -e "s,.*loading shared libraries: \\([^:]*\\): cannot open.*,$program \\1,p"
    done
done
say modes
find usr/bin usr/sbin bin/ sbin/ lib/dracut/hooks var/lib/dracut/hooks usr/lib/dracut/hooks \
    -type f ! -perm -0100 2> /dev/null
say interpreters
grep -raHoIm1 -e '^#! *[^ ]*' usr/bin usr/sbin usr/lib/dracut var/lib/dracut | tr '\\r' '?'
say loading; grep -rlE -e 'RUN.*(kmod|modprobe)' etc/udev/rules.d usr/lib/udev/rules.d
say accounts; cut -d: -f1 etc/passwd
say users
grep -rE -e '^User=' usr/lib/systemd/system etc/systemd/system | sed 's,^.*/\\(.*\\):User=,\\1 ,'
say keys; grep -rlIE -e '-----BEGIN [A-Z ]*PRIVATE KEY-----' etc root usr/lib usr/share 2> /dev/null
say secrets
grep -rIHnEi --exclude-dir=pki '{HINTS}' etc root var 2> /dev/null
say end
"""


@dataclass(frozen=True)
class Initrd:
    """An initrd's paths without a leading slash, and the output of TELL by section."""

    paths: frozenset[str]
    sections: Mapping[str, tuple[str, ...]]

    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self.sections.get(name, ())

    @property
    def modules(self) -> tuple[str, ...]:
        """dracut's modules."""
        return self["modules"]

    @property
    def complaints(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self["complaints"] if UNREADABLE.search(line))

    def kernels(self) -> set[str]:
        """The releases whose modules it has."""
        matches = (re.match(r"(?:usr/)?lib/modules/([^/]+)/.", path) for path in self.paths)
        return {match[1] for match in matches if match}

    def drivers(self) -> set[str]:
        """The kernel modules in it, as the kernel spells names."""
        return {driver_of(path) for path in self.paths if MODULE.search(path)}


@pytest.fixture(scope="session")
def unpacked(host: Host, facts: Facts) -> Initrd:
    """The image's initrd, as far as it can be unpacked."""
    if not facts.initrd:
        pytest.skip("the initrd is not available")
    for path in facts.initrds:
        try:
            check_whole(path)
        except (ValueError, zstandard.ZstdError) as error:
            return Initrd(frozenset(), {"complaints": (f"{path.name}: {error}",)})
    files = " ".join(str(INSIDE / path.name) for path in facts.initrds)
    script = f"kernel={facts.image.kernel.release} files='{files}'\n{TELL}"
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in host.run(script).stdout.splitlines():
        if line.startswith("== "):
            lines = found.setdefault(line[3:], [])
        else:
            lines.append(line)
    sections = {name: tuple(each) for name, each in found.items()}
    return Initrd(frozenset(sections.get("paths", ())), sections)


def check_whole(path: Path) -> None:
    """Raise ValueError or ZstdError if archives, or what zstd compressed behind them, end early,
    and if that is far too much.

    3cpio(1), which lsinitrd(1) of Debian testing runs, would not end.
    """
    with path.open("rb") as stream:
        measure_archives(stream)
        frame = zstandard.ZstdDecompressor().decompressobj()
        magic = stream.read(len(zstandard.FRAME_HEADER))
        if magic != zstandard.FRAME_HEADER:
            return
        frame.decompress(magic)
        unpacked = 0
        while block := stream.read(BLOCK):
            unpacked += len(frame.decompress(block))
            if frame.eof:
                return
            if unpacked > MOST_UNPACKED:
                raise ValueError(f"unexpected: it unpacks to more than {MOST_UNPACKED} bytes")
    raise ValueError("truncated: what zstd compressed has no end")


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
    path = tree / "usr/lib/modules" / facts.image.kernel.release / "modules.builtin"
    return {driver_of(line) for line in path.read_text().split()} if path.is_file() else set()


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
            "remove that line of modprobe.d, then rebuild the initrd"
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
    listed = (tree / "etc/passwd").read_text().splitlines()
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
