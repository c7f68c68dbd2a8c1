# SPDX-License-Identifier: Apache-2.0
"""python -m tests.fuzz [--cases N] [--seed N] [--target NAME] [--only NUMBER]

The cases are spread over all kinds of files.  Exit status 1 when one raised something else than our
errors, took more than two seconds of the processor, or touched a file outside; each is named so
that `--target NAME --only NUMBER` runs it again.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.run import case_of, run_cases
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Run what the command line asks for; a table on stdout."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=sorted(TARGETS), default="")
    parser.add_argument("--only", type=int, default=-1)
    asked = parser.parse_args()
    sys.dont_write_bytecode = True
    if asked.only >= 0:
        print(case_of(asked.target, asked.seed, asked.only))
    names = [asked.target] if asked.target else list(TARGETS)
    begun, violations, done = time.monotonic(), 0, 0
    print(f"{'file':12} {'cases':>6} {'refused':>8} {'slowest':>8} {'violations':>11}")
    for index, name in enumerate(names):
        share = asked.cases // len(names) + (index < asked.cases % len(names))
        numbers = [asked.only] if asked.only >= 0 else range(share)
        result = run_cases(name, numbers, asked.seed)
        print(f"{name:12} {result.cases:6} {result.refused:8} {result.slowest:6.2f} s "
              f"{len(result.violations):11}", flush=True)  # fmt: skip
        if not result.begins:
            print(f"{name}: the good file is refused")
        violations += len(result.violations) + (not result.begins)
        done += result.cases
    print(f"{done} cases in {time.monotonic() - begun:.0f} s: {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
