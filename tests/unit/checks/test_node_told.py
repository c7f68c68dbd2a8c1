# SPDX-License-Identifier: Apache-2.0
"""What a node tells, as the boot checks read it."""

from __future__ import annotations

import re
from pathlib import Path

from imagebuilder.checks.common import test_node as checks

SAID = """\
== state
running
== failed
== listens
udp   UNCONN 0 0       127.0.0.53%lo:53    0.0.0.0:*   users:(("systemd-resolve",pid=1,fd=1))
udp   UNCONN 0 0   10.77.0.21%enp0s2:68    0.0.0.0:*   users:(("systemd-network",pid=2,fd=2))
udp   UNCONN 0 0             0.0.0.0:41234 0.0.0.0:*   users:(("systemd-timesyn",pid=3,fd=1))
udp   UNCONN 0 0                [::1]:323      [::]:*
tcp   LISTEN 0 128           0.0.0.0:22    0.0.0.0:*   users:(("sshd",pid=4,fd=3))
tcp   LISTEN 0 128                 *:9100        *:*   users:(("exporter",pid=5,fd=3))
tcp   LISTEN 0 64               [::]:40000    [::]:*
tcp   LISTEN 0 128 [::ffff:127.0.0.1]:8080       *:*   users:(("llama-server",pid=6,fd=3))
== ephemeral
32768	60999
== clock
100
"""


def test_sections_are_kept_with_their_lines() -> None:
    told = checks.parse_told(SAID, 101.0)
    assert told.one("state") == "running"
    assert told["failed"] == ()
    assert told.one("failed") == ""
    assert (told.one("clock"), told.now) == ("100", 101.0)


def test_listeners_are_those_that_others_reach() -> None:
    found = checks.find_listeners(checks.parse_told(SAID, 0.0))
    assert [(one.port, one.address, one.program) for one in found] == [
        ("68/udp", "10.77.0.21%enp0s2", "systemd-network"),
        ("22/tcp", "0.0.0.0", "sshd"),
        ("9100/tcp", "*", "exporter"),
        ("40000/tcp", "[::]", "kernel"),
    ]


def test_every_section_that_a_check_reads_is_asked_for() -> None:
    asked = set(re.findall(r"^say ([a-z-]+)", checks.TELL, re.MULTILINE))
    text = Path(checks.__file__).read_text()
    read = set(re.findall(r'told(?:\.one\(|\[)"([a-z-]+)"', text))
    assert read <= asked


def test_harmless_lines_of_the_kernel_are_known() -> None:
    assert checks.HARMLESS.search("blk_update_request: I/O error, dev fd0, sector 0")
    assert not checks.HARMLESS.search("I/O error, dev loop0, sector 8")
