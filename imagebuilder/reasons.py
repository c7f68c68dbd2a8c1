# SPDX-License-Identifier: Apache-2.0
"""What changed between the inputs of two layers, in words for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from imagebuilder.decode import Opaque
from imagebuilder.digest import Json


@dataclass(frozen=True)
class LayerRecord:
    """A layer as an image's manifest remembers it; what a new plan is compared with."""

    title: str
    digest: str
    inputs: Opaque


def differences(old: Json, new: Json, name: str = "") -> tuple[str, ...]:
    """What changed between two inputs, one sentence each, in a stable order."""
    if old == new:
        return ()
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: list[str] = []
        # The date of a build follows from its packages: it is the last thing to tell.
        for key in sorted({*old, *new}, key=lambda key: (key == "epoch", key)):
            place = f"{name} {key}" if name else key
            if key not in old:
                found.append(f"{place} added")
            elif key not in new:
                found.append(f"{place} removed")
            else:
                found.extend(differences(old[key], new[key], place))
        return tuple(found)
    if is_names(old) and is_names(new):
        return list_differences([str(x) for x in old], [str(x) for x in new], name)
    if isinstance(old, str) and isinstance(new, str):
        return (f"{name} changed{tell_strings(old, new)}",)
    return (f"{name} changed from {old} to {new}",)


def tell_strings(old: str, new: str) -> str:
    """How one input text differs: versions are told, digests are not."""
    first, second = old.split(" ")[0], new.split(" ")[0]
    if first != second and len(first) < 64 and len(second) < 64:
        return f" from {first} to {second}"
    return ""


def is_names(value: Json) -> TypeGuard[Sequence[Json]]:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(item, str) for item in value)
    )


def list_differences(old: Sequence[str], new: Sequence[str], name: str) -> tuple[str, ...]:
    """What changed in a list of names; their order counts."""
    found = [f"{name} {item} added" for item in new if item not in old]
    found += [f"{name} {item} removed" for item in old if item not in new]
    return tuple(found) or (f"{name} are in another order",)
