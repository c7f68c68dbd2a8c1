# SPDX-License-Identifier: Apache-2.0
"""Readings that a site writes for the node exporter of Prometheus, in a folder that it reads.

It reads files NAME.prom in the folders of --collector.textfile.directory, and says nothing of
others (README of prometheus/node_exporter, "Textfile Collector").
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.commands import options_of
from imagebuilder.proof.reading.quotes import unquoted
from imagebuilder.proof.reading.scripts import UnitCommand
from imagebuilder.proof.reading.site import SiteService, services_of
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

EXPORTERS = ("prometheus-node-exporter", "node_exporter", "node-exporter")
OPTION = "--collector.textfile.directory"
# Debian's exporter reads this folder without the option, others read none.
DEBIANS = "/var/lib/prometheus/node-exporter"
WRITTEN = re.compile(r"(?<![\w./-])(/[\w.+/-]{1,200})/[\w.+${}-]{1,100}\.prom\b")


def prove_readings(
    subject: Subject, startup: Startup, commands: Sequence[UnitCommand]
) -> Iterator[Finding]:
    """A warning for each folder, unless another program of the image is told of it."""
    exporters = [each for name in EXPORTERS for each in services_of(subject, startup, name)]
    if not exporters:
        return
    read = [folder for each in exporters for folder in folders_of(subject, each)]
    told: set[str] = set()
    for command in commands:
        texts = [" ".join(command.words), *([command.script.text] if command.script else [])]
        for folder in dict.fromkeys(f for text in texts for f in WRITTEN.findall(text)):
            if folder in told or any(fnmatch.fnmatchcase(folder, each) for each in read):
                continue
            told.add(folder)
            if not is_read_elsewhere(startup, folder, command):
                listed = ", ".join(dict.fromkeys(read)) or "no folder"
                what = f"nobody collects what {command.said} writes to {folder}: "
                what += f"{exporters[0].name} reads {listed}"
                where = (Evidence(command.evidence.path, said=folder), exporters[0].evidence)
                hint = f"write to that folder, or set {OPTION}={folder}"
                yield SAY.warning(what, *where, hint=hint)


def folders_of(subject: Subject, exporter: SiteService) -> list[str]:
    """The folders that an exporter reads, as globs."""
    words = [part for word in exporter.words for part in (unquoted(word) or [word])]
    told = [option.value for option in options_of(words, (OPTION,)) if option.value]
    if not told:
        program = find_program(subject.root, exporter.written[0])
        content = (subject.root.map(program) if program else None) or b""
        told = [DEBIANS] if content.find(DEBIANS.encode()) >= 0 else []
    return [posixpath.normpath(each) for each in told]


def is_read_elsewhere(startup: Startup, folder: str, writer: UnitCommand) -> bool:
    """Whether the command line of another service names a folder."""
    return any(
        folder in word
        for unit in startup.starting()
        if unit.name != writer.unit.name
        for lines in unit.commands.values()
        for words in lines
        for word in words
    )
