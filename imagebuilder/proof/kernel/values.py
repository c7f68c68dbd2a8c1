# SPDX-License-Identifier: Apache-2.0
"""Values of options of modules that are not of the option's type: the kernel then does not load the
module (param_set_int() and its kin, kernel/params.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.reading.modules import Kernel
from imagebuilder.proof.say import Say
from imagebuilder.proof.subject import Subject

SAY = Say(Question.KERNEL)
NUMBER = r"[+-]?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)"
WHOLE = frozenset(("byte", "short", "ushort", "int", "uint", "long", "ulong", "ullong", "hexint"))
# kstrtobool() takes the first letter, of on and off the second.
TRUTH = re.compile(r"[01yYnNtTfFeEdD].*|[oO][nNfF].*|")


def types_of(kernel: Kernel, path: str) -> dict[str, str]:
    """The options of a module, with their types (modinfo -p)."""
    pairs = (text.partition(":") for text in kernel.reader.module(path).info.get("parmtype", ()))
    return {name: kind for name, _, kind in pairs}


def prove_values(
    subject: Subject, kernel: Kernel, options: list[tuple[str, str, str, Evidence]]
) -> Iterator[Finding]:
    """Faults, and warnings, of options that a site sets for modules of the image."""
    for module, option, value, where in options:
        path = kernel.by_name.get(module, "") if where.path not in subject.shipped else ""
        kind = types_of(kernel, path).get(option, "") if path else ""
        is_number = kind in WHOLE and not re.fullmatch(NUMBER, value)
        gets = f"and gets {value or 'nothing'}"
        hint = f"modinfo -p {module} in the image lists the types of its options"
        if is_number:
            what = f"the kernel does not load {module}: its option {option} takes a number "
            yield SAY.fault(f"{what}(such as 0x1f), {gets}", where, hint=hint)
        elif kind == "bool" and not TRUTH.fullmatch(value):
            # Some take words of their own, as nx_huge_pages= of kvm does.
            what = f"the kernel may not load {module}: its option {option} takes 0 or 1, {gets}"
            yield SAY.warning(what, where, hint=hint)
