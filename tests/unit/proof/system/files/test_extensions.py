# SPDX-License-Identifier: Apache-2.0
"""Extensions that hide files, and those that are never merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.process import Completed
from imagebuilder.proof.reading.systemd import SYSTEMD
from imagebuilder.proof.services.start import is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.files.mounts import prove_extensions
from tests.unit.proof.trees import Content, Sandbox, make_tree, subject

TOP = "/var/lib/extensions/tools"
RELEASE = f"{TOP}/usr/lib/extension-release.d/extension-release.tools"
LOG = "<31>systemd-sysext.service: Creating systemd-sysext.service/start job\n"
JOB = "<31>systemd-sysext.service: Installed new job systemd-sysext.service/start as 3\n"


def image(tmp_path: Path, files: dict[str, Content], host: str = "ID=debian\n") -> Subject:
    own: dict[str, Content] = {
        SYSTEMD: b"", "/usr/lib/os-release": host, "/usr/bin/serve": b"",
        f"{TOP}/usr/libexec/report": b"",
    }  # fmt: skip
    run = Sandbox({"env HOME=/": Completed(0, "", LOG + JOB)})
    return subject(make_tree(tmp_path, {**own, **files}), run=run, architecture="amd64")


def found(given: Subject) -> list[Finding]:
    return list(prove_extensions(given))


@pytest.mark.parametrize(
    ("release", "host", "why"),
    [
        ("ID=ubuntu\nVERSION_ID=24.04\n", "ID=debian\n", "ID=ubuntu, and os-release has ID=debian"),
        ("VERSION_ID=13\n", "ID=debian\n", "it has no ID="),
        ("ID=debian\nVERSION_ID=12\n", "ID=debian\nVERSION_ID=13\n", "VERSION_ID=12, and os-rel"),
        ("ID=debian\n", "ID=debian\nVERSION_ID=13\n", "no VERSION_ID="),
        ("ID=debian\nSYSEXT_LEVEL=2\n", "ID=debian\nVERSION_ID=13\n", "SYSEXT_LEVEL=2, and"),
        ("ID=debian\nARCHITECTURE=arm64\n", "ID=debian\n", "the image is for x86-64"),
        ("ID=debian\nVERSION_ID=13\n", "ID=debian\n", ""),
        ("ID=debian\nVERSION_ID=13\n", "ID=debian\nVERSION_ID=13\n", ""),
        ("ID=debian\nSYSEXT_LEVEL=2\n", "ID=debian\nVERSION_ID=9\nSYSEXT_LEVEL=2\n", ""),
        ("ID=debian\n", 'ID=raspbian\nID_LIKE="debian"\n', ""),
        ('ID="_any"\nARCHITECTURE=x86-64\n', "ID=debian\nVERSION_ID=13\n", ""),
    ],
)
def test_for_which_system_an_extension_is(
    release: str, host: str, why: str, tmp_path: Path
) -> None:
    given = image(tmp_path, {RELEASE: release}, host)
    told = found(given)
    assert [f.level for f in told] == ([Level.WARNING] if why else [])
    assert [why in f.what for f in told] == ([True] if why else [])
    # What it adds is in the image if it is merged.
    assert is_there(given, "/usr/libexec/report") == (not why)


def test_an_extension_that_says_nothing_is_none(tmp_path: Path) -> None:
    (told,) = found(image(tmp_path, {}))
    assert "it has no /usr/lib/extension-release.d/extension-release.tools" in told.what


def test_an_extension_over_a_program_of_the_image(tmp_path: Path) -> None:
    (told,) = found(image(tmp_path, {RELEASE: "ID=_any\n", f"{TOP}/usr/bin/serve": b"other"}))
    assert told.level is Level.FAULT
    assert "tools is merged over the image at boot and hides /usr/bin/serve" in told.what


def test_without_the_service_nothing_is_merged(tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {SYSTEMD: b"", f"{TOP}/usr/bin/x": b"", RELEASE: "ID=x\n"}))
    assert found(given) == []
