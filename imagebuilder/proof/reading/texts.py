# SPDX-License-Identifier: Apache-2.0
"""What texts of an image say, of which nobody knows how long they are: words with quotes, as
shells, systemd and PAM separate them, numbers and lists of them, and addresses that other machines
reach.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Iterator

from imagebuilder.root import Root

# More digits than any number of the kernel has; Python's int() raises ValueError for 4,300.
MOST_DIGITS = 24


# parse_size() of systemd: a fraction is allowed, and what is written after K and M is not.
SIZE = re.compile(r"(?P<count>\d{1,24})(?P<part>\.\d{1,24})? *(?P<unit>[BKMGTPE]?)")
UNITS = {unit: 10 * power for power, unit in enumerate(("", "K", "M", "G", "T", "P", "E"))}
AFFINITY, ALLOWED = "CPUAffinity", "AllowedCPUs"
# The highest number that a kernel is built for; N in a list is that of the node.
LAST = 8191
ALL = f"0-{LAST}"
# cpu lists of kernel-parameters.txt, without groups of a range (`0-63:2/8`).
RANGE = re.compile(r"(\d+)(?:-(\d+))?(?::.*)?")
HOSTS = "/etc/hosts"
NAMES = frozenset(("localhost", "localhost.localdomain", "localhost6", "ip6-localhost"))
# No program can be given a longer word (MAX_ARG_STRLEN, execve(2)), and shlex takes a time that
# grows with the square of a word's length: minutes for 4 MB.
MOST_CHARACTERS = 128 << 10


def size_of(text: str) -> int:
    """The bytes of a size in settings of systemd, such as 512M or 1.5G; -1 for other texts."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        return -1
    factor = 1 << UNITS[found["unit"].rstrip("B")]
    return whole(found["count"]) * factor + int(float(found["part"] or 0) * factor)


def whole(text: str) -> int:
    """The number that digits are, -1 for other texts; one that is too long is very large."""
    return int(text.lstrip("0")[:MOST_DIGITS] or "0") if text.isdecimal() else -1


def processors(text: str) -> frozenset[int]:
    """The numbers in a list such as `0,2-5`, `2-N` or `all`; words that are none are ignored."""
    words = re.sub(r"\bN\b", str(LAST), text.replace("all", ALL)).replace(",", " ").split()
    ranges = (match for word in words if (match := RANGE.fullmatch(word)))
    spans = {(whole(r[1]), min(whole(r[2] or r[1]), LAST)) for r in ranges}
    found: set[int] = set()
    at = 0  # all that a list names below this is found
    for first, last in sorted(spans):
        found.update(range(max(first, at), last + 1))
        at = max(at, last + 1)
    return frozenset(found)


def host_of(text: str) -> str:
    """The host of an address, without port and brackets."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    first = text.partition(":")[0]
    return first if "." in first or first in NAMES or text.count(":") < 2 else text


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text is, None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def read_hosts(root: Root) -> Iterator[tuple[str, list[str], str]]:
    """The lines of hosts(5): an address, its names, and the line."""
    for line in root.text(HOSTS).splitlines():
        if words := line.partition("#")[0].split():
            yield words[0], words[1:], line.strip()


def is_loopback(text: str) -> bool:
    """Whether an address, with or without port or prefix, is the machine's own one."""
    host = host_of(text).partition("/")[0]
    address = parse_address(host)
    return host.lower() in NAMES or (address is not None and address.is_loopback)


def is_local(text: str) -> bool:
    """Whether an address is the machine's own one, or a socket in a file."""
    return is_loopback(text) or text.startswith(("/", "unix:")) or text.endswith(".sock")


def split_words(text: str) -> list[str]:
    """The words of a text.  Raises ValueError for quotes that are not closed, and a long text."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError("longer than an argument of a program can be")
    return shlex.split(text)


def unquoted(text: str) -> list[str]:
    """The words of a text, with their quotes if they cannot be taken off."""
    try:
        return split_words(text)
    except ValueError:
        return text.split()
