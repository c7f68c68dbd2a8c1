# SPDX-License-Identifier: Apache-2.0
"""Extensions that hide files of the image, and those that are never merged."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.extensions import files_of, read_extensions
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY


def prove_extensions(subject: Subject) -> Iterator[Finding]:
    """Faults of extensions whose files hide those of the image (systemd-sysext(8)); warnings of
    those that systemd passes over without an error.
    """
    root = subject.root
    for each in read_extensions(subject):
        if each.is_file:
            what = f"the extension {each.top} may be merged over /usr or /etc at boot"
            yield SAY.warning(what, Evidence(each.top), hint="install its files with an overlay")
            continue
        if each.refusal:
            what = f"the extension {each.top} is never merged, and nothing fails: {each.refusal}"
            hint = "make the extension for this distribution, or ship its files in an overlay"
            yield SAY.warning(what, Evidence(each.release), hint=hint)
            continue
        inside = files_of(root, each)
        hidden = [
            path for path in inside if root.lies(path) and "/extension-release.d/" not in path
        ]
        if hidden:
            name = each.name
            what = f"the extension {name} is merged over the image at boot and hides {some(hidden)}"
            hint = "remove it, or ship these files in an overlay"
            yield SAY.fault(what, *(Evidence(f"{each.top}{p}") for p in hidden[:1]), hint=hint)
