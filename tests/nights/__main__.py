# SPDX-License-Identifier: Apache-2.0
"""Simulate nights: python -m tests.nights [--seed N] [--nights N] [--history DIR] [--docs FILE]

Runs as root, in a mount and a network namespace of its own, in memory.  One line a night goes to
stderr, a JSON object with all that was found to stdout; --history keeps the pages of the nights,
--docs writes the table into a page, between the comments that mark it.

exit: 0 when every rule held, 1 otherwise
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.process import run
from imagebuilder.sandbox.mounts import mount
from tests.fixtures.aptrepo import keyring, make_key
from tests.integration.published import memory_folder
from tests.integration.started import orphans_are_ours
from tests.nights.driver import Driver, Row
from tests.nights.plans import Kind, draw_plans
from tests.nights.table import fresh_nights, put_table, render_table
from tests.nights.world import DISK_BYTES, World

INSIDE = "IMAGEBUILDER_NIGHTS_INSIDE"


def simulate(seed: int, nights: int, top: Path, history: Path | None) -> list[Row]:
    """All nights, in a row each."""
    rows: list[Row] = []
    with keyring() as home, orphans_are_ours():
        world = World(top / "world", make_key(home, "Archive"), nights=nights)
        mount("none", world.places.disk, "tmpfs", data=f"size={DISK_BYTES},mode=0755")
        driver = Driver(world, top / "said")
        try:
            for plan in draw_plans(seed, nights):
                row = driver.run(plan)
                rows.append(row)
                print(line_of(row), file=sys.stderr, flush=True)
                if row.wrong:
                    print(row.said, file=sys.stderr)
            places = world.places
            for repo in (places.state / "store", places.tree / "repo"):
                done = run(["ostree", "fsck", "--quiet", f"--repo={repo}"], check=False)
                if done.status != 0:
                    rows[-1].wrong.append(f"fsck of {repo.name}: {done.stderr}")
            if history:
                shutil.copytree(places.nights, history, dirs_exist_ok=True)
                for row in rows:
                    (history / f"said-{row.plan.number:02d}.txt").write_text(row.said)
        finally:
            world.close()
    return rows


def line_of(row: Row) -> str:
    """A night in a line."""
    changes = " ".join(f"{c.package}{'!' * c.security}" for c in row.plan.changes) or "nothing new"
    faults = ", ".join(
        f"{f.kind}{'' if f.kind in row.hit else ' (did not meet it)'}" for f in row.plan.faults
    )
    wrong = "".join(f"\n    WRONG: {what}" for what in row.wrong)
    ways = " ".join(f"{name}:{way}" for name, way in row.ways.items())
    waits = f"waited {sum(row.waits) / 60:g} min" if row.waits else ""
    return (
        f"{row.plan.number:2d} {row.seconds:5.1f} s  {ways}  fresh: {len(row.fresh)}  "
        f"{row.status} {row.published} B  {changes}  [{faults}] {waits}{wrong}"
    )


def main(words: Sequence[str]) -> int:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.nights", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args(words)
    if INSIDE not in os.environ:
        namespaces = [
            "unshare",
            "--mount",
            "--net",
            "sh",
            "-c",
            'ip link set lo up; exec "$@"',
            "sh",
        ]
        os.environ[INSIDE] = "1"
        os.execvp(namespaces[0], [*namespaces, sys.executable, "-m", "tests.nights", *words])
    print(f"seed {given.seed}", file=sys.stderr)
    begun = time.monotonic()
    with memory_folder() as top:
        try:
            rows = simulate(given.seed, given.nights, top, given.history)
        finally:
            run(["umount", "--lazy", top / "world/disk"], check=False)
    seconds = time.monotonic() - begun
    if given.docs:
        host = f"{os.cpu_count()} processors, {platform.freedesktop_os_release()['PRETTY_NAME']}"
        put_table(given.docs, render_table(rows, given.seed, seconds, host, datetime.now(UTC)))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {
        "seed": given.seed,
        "nights": len(rows),
        "fresh": fresh_nights(rows),
        "valid": sum(not row.wrong for row in rows),
        "seconds": round(seconds, 1),
        "processor-seconds": round(used.ru_utime + used.ru_stime, 1),
        "met": {kind: sum(kind in row.hit for row in rows) for kind in Kind},
        "rows": [{**asdict(row), "said": ""} for row in rows],
    }
    print(json.dumps(told, indent=1))
    return 0 if fresh_nights(rows) >= len(rows) - 1 and told["valid"] == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
