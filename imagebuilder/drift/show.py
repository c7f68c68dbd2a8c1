# SPDX-License-Identifier: Apache-2.0
"""The answers for people: a table of nodes, the reasons, then each profile in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imagebuilder.drift.types import PARTS, DriftState, NodeDrift, Other, ProfileDrift
from imagebuilder.ui import table

HEADERS = ("node", "running", "would boot", *PARTS, "reboot")
MOST = 8  # reasons of a part that are listed


def render_drift(nodes: Sequence[NodeDrift], profiles: Sequence[ProfileDrift]) -> str:
    blocks: list[str] = []
    if nodes:
        blocks.append(table([row(node) for node in nodes], HEADERS))
    blocks += ["\n".join(lines) for node in nodes if (lines := list(render_node(node)))]
    blocks += ["\n".join(render_profile(profile)) for profile in profiles]
    return "\n\n".join(blocks) or "no nodes and nothing published"


def row(node: NodeDrift) -> tuple[str, ...]:
    running = str(node.running) if node.running else "-"
    following = "nothing"
    if node.next:
        following = "the same" if node.next == node.running else str(node.next)
    states = (str(node.parts[name].state) for name in PARTS)
    return node.node, running, following, *states, str(node.reboot)


def render_node(node: NodeDrift) -> Iterator[str]:
    """The reasons part by part; one that applies to all parts appears once."""
    reasons = {name: part.why for name, part in node.parts.items() if part.state != DriftState.SAME}
    if not reasons and not node.notes:
        return
    if len(reasons) == len(PARTS) and len(set(reasons.values())) == 1:
        reasons = {"": node.parts[PARTS[0]].why}
    yield f"{node.node}:"
    for name, why in reasons.items():
        label = f"{name}: " if name else ""
        yield from (f"  {label}{each}" for each in why[:MOST])
        if len(why) > MOST:
            yield f"  {label}{len(why) - MOST} more; --json has all"
    yield from (f"  {note}" for note in node.notes)


def render_profile(profile: ProfileDrift) -> Iterator[str]:
    stable = profile.stable or "nothing, because there is no stable release"
    yield f"{profile.profile}: nodes get {stable}"
    if profile.candidate:
        yield from render_other("candidate", profile.candidate)
    if profile.image and profile.image.name != profile.stable:
        where = "" if profile.published else ", built but not published"
        same_as_candidate = profile.candidate and profile.candidate.name == profile.image.name
        if not same_as_candidate:
            yield from render_other(f"newest image{where},", profile.image)
    if profile.problem:
        yield f"  could not determine what the recipe builds now: {profile.problem}"
    elif profile.reasons:
        yield f"  the recipe builds a different image, {profile.builds}:"
        yield from (f"    {reason}" for reason in profile.reasons[:MOST])
        if len(profile.reasons) > MOST:
            yield f"    {len(profile.reasons) - MOST} more; imagebuilder plan {profile.profile}"
    elif profile.builds == profile.stable:
        yield "  the recipe builds the same image"
    else:
        yield f"  the recipe builds {profile.builds}, which exists"


def render_other(what: str, other: Other) -> Iterator[str]:
    if not other.differs:
        yield f"  {what} {other.name}: same content"
        return
    yield f"  {what} {other.name}:"
    yield from (f"    {each}" for each in other.differs)
