# SPDX-License-Identifier: Apache-2.0
"""A site's files in YAML that their program cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Finding
from imagebuilder.proof.reading.documents import read_yaml
from imagebuilder.proof.reading.site import site_files
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

CLOUD_INIT = "/usr/bin/cloud-init"
FILES = ("/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg")


def prove_documents(subject: Subject) -> Iterator[Finding]:
    """Warnings of files of cloud-init, which goes on without one that is no YAML."""
    root = subject.root
    for pattern in FILES if root.is_file(CLOUD_INIT) else ():
        for path in site_files(subject, pattern):
            read = read_yaml(root, path)
            if read.problem and read.refused:
                what = f"cloud-init ignores {path}, which {read.problem}"
                yield SAY.warning(what, read.evidence, hint="correct the file")
