# SPDX-License-Identifier: Apache-2.0
"""The log of reports is bounded, and what reads it misses no line and reads none twice."""

from __future__ import annotations

import os
import random
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from imagebuilder.nodes.evidence.report_log import SETTLED, read_mark, read_piece, write_mark
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.interface import Interface
from imagebuilder.serve.options import Nfs
from imagebuilder.serve.rotate import AT_LAST, rotate_reports
from imagebuilder.tree import make_tree

MOST = 500


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    """A tree whose web server does not run; it appends to the file that it has open."""
    tree = make_tree(tmp_path / "tree")
    interface = Interface("wire0", "52:54:00:00:00:01", IPv4Interface("10.77.0.1/24"))
    return ServeConfig(tree, interface, tree.serve / "foreground", Nfs.GANESHA, ())


def read_all(config: ServeConfig) -> list[bytes]:
    """All that can be read now, with the mark moved behind it."""
    tree = config.tree
    found: list[bytes] = []
    mark = read_mark(tree.reports_mark)
    while True:
        lines, behind = read_piece(tree.reports_log, mark)
        if behind == mark:
            return found
        found += lines
        write_mark(tree.reports_mark, mark := behind)


def age(path: Path) -> None:
    """Let the web server have left a file alone for a while."""
    if path.exists():
        os.utime(path, (1e9, 1e9))


@pytest.mark.parametrize("seed", range(3))
def test_no_line_is_lost_or_read_twice_whenever_it_is_rotated(
    config: ServeConfig, seed: int
) -> None:
    dice = random.Random(seed)
    log, old = config.tree.reports_log, config.tree.serve / "reports.log.1"
    written: list[bytes] = []
    read: list[bytes] = []
    stream = log.open("ab", buffering=0)
    for number in range(250):
        line = b"line %d %s" % (number, b"x" * dice.randrange(60))
        stream.write(line + b"\n")
        written.append(line)
        if dice.random() < 0.1:
            rotate_reports(config, MOST)
        if dice.random() < 0.3:  # the web server opens its log again, late
            stream.close()
            stream = log.open("ab", buffering=0)
            if dice.random() < 0.5:
                age(old)
        if dice.random() < 0.2:
            read += read_all(config)
        assert log.stat().st_size < AT_LAST * MOST * 2
    stream.close()
    age(old)
    assert read + read_all(config) == written
    assert sorted(path.name for path in config.tree.serve.iterdir() if "log" in path.name) == [
        "reports.log",
        "reports.log.1",
    ]


def test_the_new_log_waits_until_the_old_one_is_settled(config: ServeConfig) -> None:
    log = config.tree.reports_log
    with log.open("ab", buffering=0) as worker:
        worker.write(b"one\n" * MOST)
        assert rotate_reports(config, MOST)
        assert len(read_all(config)) == MOST
        log.write_bytes(b"new\n")
        worker.write(b"late\n")
    assert SETTLED > 1
    assert read_all(config) == [b"late"]
    age(log.with_name("reports.log.1"))
    assert read_all(config) == [b"new"]


def test_a_web_server_that_is_slow_to_reload_loses_nothing(config: ServeConfig) -> None:
    log = config.tree.reports_log
    with log.open("ab", buffering=0) as worker:
        worker.write(b"one\n" * MOST)
        assert rotate_reports(config, MOST)
        age(log.with_name("reports.log.1"))
        assert len(read_all(config)) == MOST
        worker.write(b"late\n")
        age(log.with_name("reports.log.1"))
        assert read_all(config) == [b"late"]
    log.write_bytes(b"new\n")
    assert read_all(config) == [b"new"]


def test_a_reader_that_is_outpaced_loses_the_oldest_and_nothing_grows(config: ServeConfig) -> None:
    log = config.tree.reports_log
    log.write_bytes(b"a" * MOST + b"\n")
    assert rotate_reports(config, MOST)
    read_all(config)
    assert not rotate_reports(config, MOST)
    log.write_bytes(b"b\n" * MOST)
    assert not rotate_reports(config, MOST), "the old one is not settled"
    log.write_bytes(b"c\n" * MOST * AT_LAST)
    assert rotate_reports(config, MOST)
    assert set(read_all(config)) == {b"c"}


def test_who_was_killed_in_between_is_made_good(config: ServeConfig) -> None:
    log = config.tree.reports_log
    with log.open("ab", buffering=0) as worker:
        worker.write(b"one\n")
        log.rename(log.with_name("reports.log.1"))
        assert rotate_reports(config, MOST)
        assert log.stat().st_mode & 0o777 == 0o600
        os.utime(log, (1e9, 1e9))  # it was not told, and goes on with the old one
        worker.write(b"two\n")
        assert rotate_reports(config, MOST)
        assert not rotate_reports(config, MOST)
    assert read_all(config) == [b"one", b"two"]
