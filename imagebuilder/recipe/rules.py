# SPDX-License-Identifier: Apache-2.0
"""Rules for the names, paths and words that people write, each with its description."""

from __future__ import annotations

import re
from dataclasses import dataclass

from imagebuilder.bootfiles import CHANGED_BY_IPXE

# Each profile and each family of cards is read with all that it extends, so a long chain of them
# would take minutes to list.
MOST_EXTENDED = 32


@dataclass(frozen=True)
class Rule:
    """A pattern that a whole text must match; `what` completes "is not ..." in messages."""

    pattern: re.Pattern[str]
    what: str

    @property
    def whole(self) -> str:
        """The anchored pattern, for models and JSON Schema."""
        return f"^({self.pattern.pattern})$"


@dataclass(frozen=True)
class Sometimes:
    """A rule for a text that may also be empty."""

    rule: Rule


class Decides:
    """Marks a text as an expression that is true or false."""


DECIDES = Decides()


def rule(pattern: str, what: str) -> Rule:
    return Rule(re.compile(pattern), what)


# Profiles, bases, overlays, builds, sources: part of file names, URLs and OSTree refs.
NAME = rule(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
    'a name: use letters, digits, ".", "_" and "-", at most 64, with a letter or digit first',
)
PACKAGE_NAME = rule(
    r"[a-z0-9][a-z0-9.+-]*[a-z0-9.+]",
    'the name of a package: use lower-case letters, digits, ".", "+" and "-"',
)
PACKAGE = rule(
    rf"{PACKAGE_NAME.pattern.pattern}(=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?",
    f"{PACKAGE_NAME.what}, and =VERSION to pin it",
)
# Of distributions whose names have capitals: NetworkManager, mod_ssl, R.
ANY_PACKAGE = rule(
    r"[A-Za-z0-9]([A-Za-z0-9._+-]*[A-Za-z0-9._+])?(=[A-Za-z0-9][A-Za-z0-9._+:~^-]*)?",
    'the name of a package: use letters, digits, ".", "_", "+" and "-", and =VERSION to pin it',
)
PIN = rule(r"[A-Za-z0-9][A-Za-z0-9._+:~^*-]*", "the version of a package")
# A module of packages, of which one stream at a time can be enabled (Enterprise Linux).
STREAM = rule(
    r"[A-Za-z0-9][A-Za-z0-9._+-]*:[A-Za-z0-9][A-Za-z0-9._+-]*",
    "a module and its stream, such as nvidia-driver:open-dkms",
)
UNIT = rule(
    r"[A-Za-z0-9:_.\\@-]+\.(service|socket|timer|target|path|mount|automount|swap|slice|scope)",
    "the full name of a systemd unit, such as ssh.service",
)
SERVICE = rule(r"[A-Za-z0-9:_.\\@-]+\.service", "the full name of a service, such as ssh.service")
MODULE = rule(r"[A-Za-z0-9_-]+", 'the name of a kernel module: use letters, digits, "_" and "-"')
ACCOUNT = rule(
    r"[a-z_][a-z0-9_-]{0,31}",
    'the name of an account: use lower-case letters, digits, "_" and "-", at most 32, '
    'with a letter or "_" first',
)
SUDOER = rule(
    rf"%?({ACCOUNT.pattern.pattern})", "the name of an account, or of a group with % before it"
)
VAR = rule(
    r"[a-z][a-z0-9_]{0,63}",
    'the name of a var: use lower-case letters, digits and "_", at most 64, with a letter first',
)
ANSIBLE_VAR = rule(
    r"[A-Za-z_][A-Za-z0-9_]*", 'the name of a var of Ansible: use letters, digits and "_"'
)
ANSIBLE_GROUP = rule(
    r"[A-Za-z0-9_][A-Za-z0-9._-]*", 'the name of a group: use letters, digits, ".", "_" and "-"'
)
ENV = rule(
    r"[A-Z][A-Z0-9_]{0,63}",
    'the name of an environment variable: use capital letters, digits and "_"',
)
IMPORT = rule(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "the name of a Python module, such as vllm")
KERNEL = rule(r"[a-z0-9]{1,32}", "the name of a kernel: use lower-case letters and digits")
PCI = rule(r"[0-9a-f]{4}:[0-9a-f]{4}", "a PCI id such as 1002:7480")
FINGERPRINT = rule(r"[0-9A-F]{40}", "a fingerprint: 40 digits and letters A to F, without spaces")
# WORD and CMDLINE are one word each; a template may be in the first before it is rendered.
WORD = rule(r"[^\s\"']+", "one word without quotes")
CMDLINE = rule(
    rf"(?!{CHANGED_BY_IPXE})[^\s\"'\x00]{{1,256}}",
    'one word of a kernel command line: use no quotes, no "${", ";", "&&", "||", no "#" first, '
    "and at most 256 characters",
)
LINE = rule(r"[^\n\r]*", "one line")
GECOS = rule(r"[^\n\r:]*", "one line without a colon")
PLACE = rule(r"(/(?!\.\.?(/|$))[^/\s:]+)+", "an absolute path without `..`, spaces and colons")
ROOT_PATH = rule(r"/[^\n\x00]{0,1023}", "an absolute path")
GLOB = rule(
    r"(/(?!\.\.?(/|$)|\*+(/|$))[^/\n\r]+)(/(?!\.\.?(/|$))[^/\n\r]+)*",
    "an absolute glob that names a first folder",
)
# Login, host and port.  Brackets are for the addresses of IPv6 alone: nothing can split others.
AUTHORITY = r"([^\s/\[\]]*@)?(\[[0-9A-Fa-f:.]+\](:[0-9]+)?|[^\s/@\[\]]+)"
URI = rule(
    rf"https?://{AUTHORITY}(/\S*)?|file://[^\s/\[\]]*/\S*",
    "an address that begins with http://, https:// or file://",
)
# Where pip finds wheels, one option on a line.  pip takes any others on that line too: they would
# change what is chosen, and with --editable it runs a program of that project on this host.
INDEX = rule(
    r"(-[if][ \t]+|--(index-url|extra-index-url|find-links|trusted-host)(=|[ \t]+))"
    r"""[^\s'"\\]+""",
    "one option with one address",
)
ARCHIVE = rule(r"(https?|file)://[^\n]+", URI.what)  # a template may be in it
MIRROR = rule(
    rf"(tor\+)?https?://{AUTHORITY}(/\S*)?|(file|copy):(//[^\s/\[\]]*)?/\S+",
    "an address that begins with http://, https:// or file:/",
)
SNAPSHOT = rule(r"(\d{8}T\d{6}Z)?", "a time such as 20260101T000000Z")
MODE = rule(r"([0-7]{4})?", "a mode of four octal digits, such as 0440")
# 1 to 65535.
NUMBER = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
PORT = rule(f"({NUMBER})/(tcp|udp)", "a port with its protocol, such as 22/tcp")
SYSCTL = rule(r"[A-Za-z0-9_][A-Za-z0-9_.*/-]*", "the name of a sysctl")
VERSION = rule(r"\d{1,4}(\.\d{1,4}){0,3}", "a version, such as 12.8")
CUDA = rule(r"(\d+\.\d+)?", "a version of CUDA, such as 12.8")
# Other vendors' as their compilers name them; not with g or s first, so that a slip in gfx1102 or
# sm_120 is seen.
TARGET = rule(
    r"gfx[0-9a-f]{3,4}|sm_[0-9]{2,3}[af]?|[a-fh-rt-z][a-z0-9_-]{1,31}",
    "an accelerator target, such as gfx1102 or sm_120",
)
# For values that may also be empty.
ANY_TARGET = rule(f"({TARGET.pattern.pattern})?", TARGET.what)
ANY_ACCOUNT = rule(f"({ACCOUNT.pattern.pattern})?", ACCOUNT.what)
DEVICE = rule(r"/dev/[^\s]+", "a path below /dev")
BELOW = rule(r"(?!/)(?!.*(^|/)\.\.(/|$))[^\n\s]+", "a relative path without `..`")
CARDS = rule(
    r"[A-Za-z0-9][A-Za-z0-9 ()/.+-]{1,79}(, [A-Za-z0-9][A-Za-z0-9 ()/.+-]{1,79})*",
    'the names of a card: use letters, digits, spaces, "()", "/", ".", "+", "-", and ", " between',
)
FIRMWARE = rule(
    r"[A-Za-z0-9][A-Za-z0-9._*?\[\]-]*(/[A-Za-z0-9*?\[][A-Za-z0-9._*?\[\]-]*)*",
    "a glob below /usr/lib/firmware, such as amdgpu/gc_11_0_2_*.bin",
)
PROGRAM = rule(
    r"(/[A-Za-z0-9_.+-]+)+", "the absolute path of a program, such as /usr/bin/nv-fabricmanager"
)
ENDING = rule(
    r"[A-Za-z0-9_./-]*[A-Za-z0-9_-]\.[a-z0-9]+",
    "the end of the name of a file, such as _mes_2.bin",
)
BACKEND = rule(r"[a-z0-9]+", "the name of a backend: use lower-case letters and digits")
# What nodes.yaml and the site file have.
IMAGE_VERSION = rule(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}", "the version of an image")
CONSOLE = rule(r"[A-Za-z0-9][A-Za-z0-9,]{0,63}", "a console such as ttyS0,115200")
FOLDER = rule(
    r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,255}",
    'a relative path: use letters, digits, ".", "_", "-" and "/"',
)
# What a program or a configuration file takes as one word: no option, no second line.
HOST = rule(
    r"[A-Za-z0-9\[][A-Za-z0-9._:/%\[\]-]{0,254}",
    'a host, HOST:PORT or a URL: use letters, digits, ".", "_", ":", "/", "%", "[", "]" and "-"',
)
MAIL = rule(r"[^\s<>,;:\"()@]+(@[^\s<>,;:\"()@]+)?", "a mail address")
RELAY = rule(
    r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?", "a mail server, as HOST or HOST:PORT"
)
RULES = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
