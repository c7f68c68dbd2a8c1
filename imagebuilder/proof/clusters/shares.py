# SPDX-License-Identifier: Apache-2.0
"""Servers that share a card, each with a part of its memory: together they may want more than all.

An engine that finds less memory free than its share does not start (request_memory() of vLLM's
v1/worker/utils.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.reading.commands import options_of
from imagebuilder.proof.reading.quotes import unquoted
from imagebuilder.proof.reading.site import SiteService, site_services
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject

# Of vLLM and of SGLang.
SHARES = ("--gpu-memory-utilization", "--gpu_memory_utilization", "--mem-fraction-static",
          "--mem_fraction_static")  # fmt: skip
NUMBER = re.compile(r"0?\.\d{1,6}|[01](\.\d{1,6})?")
# vLLM's without the option.
VLLM, DEFAULT = re.compile(r"(.*/)?vllm(/serve)?|vllm\.entrypoints\..*"), 0.9
SELECTORS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
             "ZE_AFFINITY_MASK")  # fmt: skip
FIRST = "0"
ALL = 1.005  # of a card, with what numbers lose in sums


@dataclass(frozen=True)
class CardShare:
    """A part of the memory of a card (its number or name) that a service takes."""

    service: SiteService
    card: str
    part: float
    said: str
    evidence: Evidence


def prove_shares(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """A warning for a card: which services run at the same time, a site may decide elsewhere."""
    if not subject.chips:
        return
    by_card: dict[str, dict[str, CardShare]] = {}
    for service in site_services(subject, startup):
        if share := share_of(service):
            by_card.setdefault(share.card, {}).setdefault(service.name, share)
    for shares in by_card.values():
        together = [each for each in shares.values() if not excludes(each, shares)]
        total = sum(each.part for each in together)
        if len(together) > 1 and total > ALL:
            parts = " and ".join(f"{each.service.name} {each.said}" for each in together[:4])
            what = f"services want {total:.2f} of the memory of one card: {parts}; those that "
            what += "start last find too little, and fail"
            hint = "let the shares add up to less than 1, or give each service a card of its own "
            hint += f"({SELECTORS[0]}=)"
            yield SAY.warning(what, *(each.evidence for each in together[:4]), hint=hint)


def excludes(share: CardShare, others: dict[str, CardShare]) -> bool:
    """Whether a service stops another one that takes a share, or the other way round."""
    conflicts = {share.service.name: set(share.service.unit.words("Conflicts"))}
    conflicts |= {n: set(s.service.unit.words("Conflicts")) for n, s in others.items()}
    mine = conflicts.pop(share.service.name)
    return bool(mine & conflicts.keys()) or any(share.service.name in c for c in conflicts.values())


def share_of(service: SiteService) -> CardShare | None:
    card = next((v.value for n in SELECTORS if (v := service.environment.get(n))), FIRST)
    card = card.partition(",")[0].strip() or FIRST
    for option in options_of(service.words, SHARES):
        if NUMBER.fullmatch(option.value):
            return CardShare(
                service, card, float(option.value), f"({option.value})", service.evidence
            )
    # Wrappers take the options of a server from a variable of any name.
    for name, variable in service.environment.items():
        for option in options_of(list(unquoted(variable.value)), SHARES):
            if NUMBER.fullmatch(option.value):
                where, said = variable.evidence(name), f"({option.value})"
                return CardShare(service, card, float(option.value), said, where)
    if any(map(VLLM.fullmatch, service.words[:4])):
        said = f"({DEFAULT}, the default)"
        return CardShare(service, card, DEFAULT, said, service.evidence)
    return None
