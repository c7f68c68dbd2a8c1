# SPDX-License-Identifier: Apache-2.0
"""The results of a verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from imagebuilder.digest import Json
from imagebuilder.errors import one_line
from imagebuilder.ui import format_count

REPAIR = "run imagebuilder fsck --repair"


@dataclass(frozen=True)
class Damage:
    """A damaged thing: its name, how it is damaged, where it is, and what uses it.

    `repaired` is what was done about it, "" if nothing; `hint` what a person can do.
    """

    what: str
    how: str
    where: str
    used: tuple[str, ...] = ()
    hint: str = REPAIR
    repaired: str = ""

    def fixed(self, how: str) -> Damage:
        return replace(self, repaired=how)

    def render(self) -> str:
        said = one_line(f"{self.what} {self.how}: {self.where}")
        lines = [said, *(f"    {one_line(line)}" for line in self.used)]
        if self.repaired:
            return "\n".join([*lines, f"  repaired: {self.repaired}"])
        return "\n".join([*lines, f"  hint: {self.hint}"] if self.hint else lines)

    def as_json(self) -> dict[str, Json]:
        return {
            "what": self.what,
            "how": self.how,
            "where": self.where,
            "used": list(self.used),
            "repaired": self.repaired,
        }


@dataclass(frozen=True)
class Checked:
    """The number of verified things by kind, and the damage.

    `unknown` are layers of older versions whose commit is not recorded; `dropped` are layers and
    images that were removed so that the next build rebuilds them.
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
        return {
            "ok": self.whole,
            **self.counts,
            "damage": [each.as_json() for each in self.damage],
            "unknown-layers": list(self.unknown),
            "dropped": list(self.dropped),
        }

    def render(self) -> str:
        lines = [each.render() for each in self.damage]
        if self.dropped:
            lines.append("dropped; the next build rebuilds them:")
            lines += [f"    {name}" for name in self.dropped]
        if self.unknown:
            many = format_count(len(self.unknown), "layer")
            lines.append(f"{many} of an older version: no record has the commit")
        left = sum(not each.repaired for each in self.damage)
        things = {name.removesuffix("s").replace("-", " "): n for name, n in self.counts.items()}
        verified = ", ".join(format_count(number, thing) for thing, number in things.items())
        if left:
            lines.append(f"found {format_count(left, 'fault')} in {verified}")
        else:
            lines.append(f"{'repaired' if self.damage else 'intact'}: {verified}")
        return "\n".join(lines)


def together(parts: Sequence[Checked]) -> Checked:
    return Checked(
        {name: number for part in parts for name, number in part.counts.items()},
        tuple(each for part in parts for each in part.damage),
        tuple(each for part in parts for each in part.unknown),
        tuple(each for part in parts for each in part.dropped),
    )
