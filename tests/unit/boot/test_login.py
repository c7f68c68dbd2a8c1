# SPDX-License-Identifier: Apache-2.0
"""The settings of ssh to a node under test, which a person may use by hand too."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.boot.login import CONFIG
from imagebuilder.process import run
from imagebuilder.ssh import quoted_path


def test_a_person_gets_a_terminal_and_a_folder_may_have_any_name(tmp_path: Path) -> None:
    work = tmp_path / "my state 100%"
    config = tmp_path / "config"
    config.write_text(
        CONFIG.format(
            name="gate-1", address="10.77.0.11", key=quoted_path(work / "key"),
            known=quoted_path(work / "known"), patience=5, socket="/run/gate-1.ssh",
        )
    )  # fmt: skip
    said = run(["ssh", "-G", "-F", config, "gate-1"]).stdout.splitlines()
    assert f"userknownhostsfile {work}/known" in said
    assert [line for line in said if line.startswith("identityfile ")] == [
        f"identityfile {work}/key".replace("%", "%%")  # it is expanded later
    ]
    assert "requesttty auto" in said
