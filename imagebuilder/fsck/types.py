# SPDX-License-Identifier: Apache-2.0
"""What a verification found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from imagebuilder.digest import Json
from imagebuilder.ui import format_count

REPAIR = "imagebuilder fsck --repair"


@dataclass(frozen=True)
class Damage:
    """One thing that is not what it was: its name, how, where it lies, and what uses it.

    `repaired` says what was done about it, "" when nothing was; `hint` what a person can do.
    """

    what: str
    how: str
    where: str
    used: tuple[str, ...] = ()
    hint: str = REPAIR
    repaired: str = ""

    def fixed(self, how: str) -> Damage:
        """The same, repaired."""
        return replace(self, repaired=how)

    def render(self) -> str:
        """As lines for people."""
        lines = [f"{self.what} {self.how}: {self.where}", *(f"    {line}" for line in self.used)]
        if self.repaired:
            return "\n".join([*lines, f"  repaired: {self.repaired}"])
        return "\n".join([*lines, f"  hint: {self.hint}"] if self.hint else lines)

    def as_json(self) -> dict[str, Json]:
        """As a value for programs."""
        return {
            "what": self.what,
            "how": self.how,
            "where": self.where,
            "used": list(self.used),
            "repaired": self.repaired,
        }


@dataclass(frozen=True)
class Checked:
    """What was verified, by kind and number, and what was found.

    `unknown` are layers of older versions, for which nothing says what commit they lead to;
    `dropped` are layers and images that were removed so that the next build makes them again.
    """

    counts: dict[str, int]
    damage: tuple[Damage, ...] = ()
    unknown: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged, or everything was repaired."""
        return all(each.repaired for each in self.damage)

    def as_json(self) -> dict[str, Json]:
        """As a value for programs."""
        return {
            "ok": self.whole,
            **self.counts,
            "damage": [each.as_json() for each in self.damage],
            "unknown-layers": list(self.unknown),
            "dropped": list(self.dropped),
        }

    def render(self) -> str:
        """As text for people."""
        lines = [each.render() for each in self.damage]
        if self.dropped:
            lines.append("dropped; the next build builds them again:")
            lines += [f"    {name}" for name in self.dropped]
        if self.unknown:
            many = format_count(len(self.unknown), "layer")
            lines.append(f"{many} of an older version: no record says which commit belongs to it")
        left = sum(not each.repaired for each in self.damage)
        things = {name.removesuffix("s").replace("-", " "): n for name, n in self.counts.items()}
        verified = ", ".join(format_count(number, thing) for thing, number in things.items())
        if left:
            lines.append(f"found {format_count(left, 'fault')} in {verified}")
        else:
            lines.append(f"{'repaired' if self.damage else 'whole'}: {verified}")
        return "\n".join(lines)


def together(parts: Sequence[Checked]) -> Checked:
    """Several results as one."""
    return Checked(
        {name: number for part in parts for name, number in part.counts.items()},
        tuple(each for part in parts for each in part.damage),
        tuple(each for part in parts for each in part.unknown),
        tuple(each for part in parts for each in part.dropped),
    )
