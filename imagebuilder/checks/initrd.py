# SPDX-License-Identifier: Apache-2.0
"""What is in the initrd of an image, and what its modprobe loads."""

from __future__ import annotations

import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard
from testinfra.host import Host

from imagebuilder.checks.facts import Facts
from imagebuilder.cpio import measure_archives, skip_padding
from imagebuilder.limited import GZIP, MOST_DICTIONARY, Stream
from imagebuilder.sandbox.sandbox import INSIDE

MODULE = re.compile(r"\.ko(\.(xz|zst|gz))?$")
PLACE = "/tmp/initrd"
# Drivers of NICs that nodes boot from, if the kernel has them; as in overlays/netboot.
NIC_DRIVERS = (
    "asix", "atlantic", "ax88179_178a", "bnxt_en", "cdc_ether", "cdc_ncm", "e1000", "e1000e",
    "i40e", "ice", "igb", "igc", "ixgbe", "mlx4_en", "mlx5_core", "r8152", "r8169", "tg3",
    "virtio_net",
)  # fmt: skip
ROOT_DRIVERS = ("erofs", "loop", "nfs", "nfsv3", "nfsv4", "overlay", "squashfs")
# Lines that imagebuilder.secret checks.
HINTS = "pass|pwd|psk|secret|token|key|auth|cred|://"
DRIVERS = " ".join((*NIC_DRIVERS, *ROOT_DRIVERS))
# zstd makes up to 32,000 bytes of one, and xz less: of a block at most 32 MB, which a node has in
# any case.  bzip2 makes more of one, and lz4 at most 255.
BLOCK = 1 << 10
MOST_UNPACKED = 2 << 30
UNREADABLE = re.compile(r"(?i)\b(error|premature|unexpected|truncated|not in gzip|corrupt)")
# One command, because lsinitrd(1) takes a second.  The first archive has the processors' microcode
# and no compression.  kmod of the root reads the indexes and the configuration of the initrd, the
# loader of the initrd its libraries.  As udev does, it loads nothing that is blacklisted.
TELL = f"""\
say() {{ echo "== $1"; }}
loads() {{ "$@" -S "$kernel" -a -b -q --show-depends {DRIVERS} 2> /dev/null; }}
rm -rf {PLACE}; mkdir {PLACE}; cd {PLACE}
cat $files > {PLACE}.img
lsinitrd --unpack {PLACE}.img > /dev/null 2> {PLACE}.said
say complaints; tail -5 {PLACE}.said
say paths; find . -type f -o -type l | sed 's/..//'
cpio --quiet -t < {PLACE}.img 2> /dev/null
say modules; cat usr/lib/dracut/modules.txt 2> /dev/null || cat lib/dracut/modules.txt
say root; loads modprobe
say initrd; loads modprobe -d . -C etc/modprobe.d -C usr/lib/modprobe.d
say blacklisted; grep -rsE '^[[:blank:]]*blacklist[[:blank:]]' etc/modprobe.d usr/lib/modprobe.d
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


# By how each begins.  The kernel unpacks one behind the other, as do the programs of lsinitrd(1).
FORMATS: Mapping[bytes, Callable[[], Stream]] = {
    zstandard.FRAME_HEADER: lambda: zstandard.ZstdDecompressor().decompressobj(),
    b"\x1f\x8b": lambda: zlib.decompressobj(GZIP),
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(memlimit=MOST_DICTIONARY),
}


def driver_of(path: str) -> str:
    """The kernel's name of the module in a file."""
    return MODULE.sub("", path.rpartition("/")[2]).replace("-", "_")


@dataclass(frozen=True)
class Initrd:
    """An initrd's paths without a leading slash, and the output of TELL by section."""

    paths: frozenset[str]
    sections: Mapping[str, tuple[str, ...]]

    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self.sections.get(name, ())

    @property
    def modules(self) -> tuple[str, ...]:
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

    def blacklists(self) -> dict[str, str]:
        """Where in it each module is blacklisted, by the module's name."""
        found = (line.partition(":")[::2] for line in self["blacklisted"])
        return {driver_of(said.split()[1]): path for path, said in found if len(said.split()) > 1}


def read_initrd(host: Host, facts: Facts) -> Initrd:
    """The initrd of an image, as far as it can be unpacked, read with the programs of its root."""
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
    """Raise ValueError or ZstdError if archives, or what is compressed behind them, end early, and
    if that is far too much.

    3cpio(1), which lsinitrd(1) of Debian testing runs, would not end.
    """
    with path.open("rb") as stream:
        unpacked = 0
        while True:
            measure_archives(stream)
            packed = find_packed(stream)
            if packed is None:
                return
            for size in packed:
                unpacked += size
                if unpacked > MOST_UNPACKED:
                    raise ValueError(f"unexpected: it unpacks to more than {MOST_UNPACKED} bytes")
            skip_padding(stream)


def find_packed(stream: BinaryIO) -> Iterator[int] | None:
    """The sizes of pieces of what is compressed at this place of a stream, which ends behind it.

    None if that is nothing, or of another kind than those of FORMATS.
    """
    start = stream.tell()
    magic = stream.read(max(map(len, FORMATS)))
    stream.seek(start)
    for begin, make in FORMATS.items():
        if magic.startswith(begin):
            return sizes_of(stream, make())
    return None


def sizes_of(stream: BinaryIO, unpacking: Stream) -> Iterator[int]:
    """The sizes of what each block unpacks to.  Raises ValueError if there is no end."""
    while not unpacking.eof:
        block = stream.read(BLOCK)
        if not block:
            raise ValueError("truncated: what is compressed has no end")
        try:
            yield len(unpacking.decompress(block))
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise ValueError(f"corrupt: {error}") from error
    stream.seek(-len(unpacking.unused_data), os.SEEK_CUR)
