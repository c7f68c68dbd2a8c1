# SPDX-License-Identifier: Apache-2.0
"""What rendered texts must look like: names, paths, words."""

from __future__ import annotations

import re

from imagebuilder.recipe.render import Rule

PACKAGE = Rule(
    re.compile(r"[a-z0-9][a-z0-9.+-]+(=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?"), "the name of a package"
)
PIN = Rule(re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~*-]*"), "the version of a package")
UNIT = Rule(
    re.compile(
        r"[A-Za-z0-9:_.\\@-]+\.(service|socket|timer|target|path|mount|automount|swap|slice|scope)"
    ),
    "the full name of a systemd unit, such as ssh.service",
)
MODULE = Rule(re.compile(r"[A-Za-z0-9_-]+"), "the name of a kernel module")
ACCOUNT = Rule(re.compile(r"[a-z_][a-z0-9_-]{0,31}"), "the name of an account")
WORD = Rule(re.compile(r"[^\s\"']+"), "one word without quotes")
LINE = Rule(re.compile(r"[^\n\r]*"), "one line")
GECOS = Rule(re.compile(r"[^\n\r:]*"), "one line without a colon")
PLACE = Rule(re.compile(r"(/(?!\.\.?(/|$))[^/\n\r:]+)+"), "an absolute path without `..`")
GLOB = Rule(re.compile(r"(/(?!\.\.?(/|$)|\*+(/|$))[^/\n\r]+)(/(?!\.\.?(/|$))[^/\n\r]+)*"),
            "an absolute glob that names a first folder")  # fmt: skip
URI = Rule(re.compile(r"(https?|file)://[^\s]+"), "an address")
# 1 to 65535.
NUMBER = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
PORT = Rule(re.compile(f"({NUMBER})/(tcp|udp)"), "a port with its protocol, such as 22/tcp")
SYSCTL = Rule(re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.*/-]*"), "the name of a sysctl")
VERSION = Rule(re.compile(r"\d+(\.\d+)*"), "a version, such as 12.8")
TARGET = Rule(re.compile(r"gfx[0-9a-f]{3,4}|sm_[0-9]{2,3}[af]?|dg2|xe[a-z0-9_-]*"),
              "an accelerator target, such as gfx1102 or sm_120")  # fmt: skip
DEVICE = Rule(re.compile(r"/dev/[^\s]+"), "a path below /dev")
BELOW = Rule(re.compile(r"(?!/)(?!.*(^|/)\.\.(/|$))[^\n\s]+"), "a relative path without `..`")
BACKEND = Rule(re.compile(r"[a-z0-9]+"), "the name of a backend")
