# SPDX-License-Identifier: Apache-2.0
"""The modules that are loaded at boot because a file or the command line names them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from imagebuilder.image.proof import Finding, Question
from imagebuilder.proof.reading.modprobe import read_settings, requested
from imagebuilder.proof.reading.modules import Kernel
from imagebuilder.proof.say import Say
from imagebuilder.proof.subject import Subject

SAY = Say(Question.KERNEL)
WORD = re.compile(r"\w+")


def prove_requested(subject: Subject, kernel: Kernel) -> Iterator[Finding]:
    """Warnings about modules that a site names and that are not in the image."""
    settings = read_settings(subject)
    for name, where in requested(subject) if kernel.by_name else ():
        module = settings.real(name)
        is_there = module in kernel.by_name or module in kernel.builtin
        # systemd looks for aliases too, which may have any form.
        if is_there or where.path in subject.shipped or not WORD.fullmatch(module):
            continue
        if module in kernel.named or module in settings.never:
            continue
        near = get_close_matches(module, kernel.by_name, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else "install it, or remove that line"
        yield SAY.warning(f"{name} is not loaded: the image has no such module", where, hint=hint)
