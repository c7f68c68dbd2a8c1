# SPDX-License-Identifier: Apache-2.0
"""One night, as a process of its own: python -m tests.nights.night TOP

All of it is the product's, but for the boot test, which is told how it ends, and for waiting, which
ends when the world says so.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from imagebuilder.errors import ImagebuilderError
from imagebuilder.nightly.run import run_nightly
from imagebuilder.nightly.types import NightlyOptions
from imagebuilder.report.types import Report
from imagebuilder.settings import load_settings
from imagebuilder.tree import ReleaseName, Tree, make_tree
from imagebuilder.ui import Ui
from tests.nights.world import BROKEN, KEEP, PROFILES, Places
from tests.unit.planted_reports import NO_ROOT, PASSED, make_report, plant


class Booting:
    """The boot test: it fails for a package that says so, and as often as TOP/boots says."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.numbers = count(1)

    def __call__(self, tree: Tree, release: ReleaseName, ui: Ui) -> Report:
        ui.note(f"booting {release}")
        verdict = PASSED if self.passes(tree, release) else NO_ROOT
        made = make_report(tree, str(release), 0, verdict=verdict)
        now = datetime.now(UTC)
        identity = f"{now:%Y%m%dT%H%M%SZ}-{os.getpid()}-{next(self.numbers)}"
        report = replace(made, id=identity, started=now.isoformat(timespec="seconds"))
        plant(tree, report)
        return report

    def passes(self, tree: Tree, release: ReleaseName) -> bool:
        """Whether it boots this time."""
        left = int(self.places.boots.read_text()) if self.places.boots.exists() else 0
        if left:
            self.places.boots.write_text(str(left - 1))
            return False
        root = tree.root(release)
        return not any(BROKEN in path.read_text() for path in root.glob("usr/lib/*/version"))


class Waiting:
    """Time passes while somebody waits; the world sees the file and takes it away."""

    def __init__(self, places: Places) -> None:
        self.places = places

    def __call__(self, seconds: float) -> None:
        new = self.places.wait.with_name(".wait")
        new.write_text(str(seconds))
        new.rename(self.places.wait)
        while self.places.wait.exists():
            time.sleep(0.01)


def main(top: str) -> int:
    """Run the night; 0 where it went well, else as `imagebuilder nightly` ends."""
    places = Places(Path(top))
    settings = load_settings(os.environ)
    options = NightlyOptions(tuple(PROFILES), places.nights, promote=True, keep=KEEP)
    ui = Ui(sys.stderr)
    try:
        night = run_nightly(
            options,
            settings,
            make_tree(places.tree),
            ui,
            boot=Booting(places),
            wait=Waiting(places),
        )
    except ImagebuilderError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 1 if night.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
