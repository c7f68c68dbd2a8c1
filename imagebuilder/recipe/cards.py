# SPDX-License-Identifier: Apache-2.0
"""Load hardware/*.yaml, shipped and the project's own, into the chips they describe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from imagebuilder.errors import Fault, InputError
from imagebuilder.phrases import listing, quote, suggest
from imagebuilder.recipe.chip import VERSIONS, Chip
from imagebuilder.recipe.model_hardware import FamilyModel, HardwareFile, ProposalModel
from imagebuilder.recipe.positions import KeyPath, Origin
from imagebuilder.recipe.read import Read, read_file
from imagebuilder.recipe.rules import MOST_EXTENDED
from imagebuilder.settings import Settings
from imagebuilder.share import SHARE

# What a family says of itself; every other key is a fact and has a source.
NO_FACTS = frozenset(
    ("extends", "vendor", "architecture", "integrated", "cards", "proposals", "sources")
)
FACTS = frozenset(FamilyModel.model_fields) - NO_FACTS
# Without these a card cannot be checked.  `firmware: []` is a valid value.
NEEDED = ("vendor", "modules", "firmware")


@dataclass(frozen=True)
class Cards:
    """Every known card by PCI id, and the proposals for each family, best first."""

    chips: Mapping[str, Chip]
    proposals: Mapping[str, Sequence[ProposalModel]] = field(default_factory=dict)

    def find(self, pci: str) -> Chip | None:
        """The chip with this PCI id, if it is known; upper case does not matter."""
        return self.chips.get(pci.lower())

    def named(self, name: str) -> Chip | None:
        """The chip that is sold under this name; case does not matter."""
        spelled = name.casefold()
        found = (c for c in self.chips.values() if spelled in map(str.casefold, c.names))
        return next(found, None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for chip in self.chips.values() for name in chip.names)


@dataclass(frozen=True)
class PlacedFamily:
    model: FamilyModel
    origin: Origin

    @property
    def keys(self) -> Mapping[str, object]:
        """The values that it sets, by field."""
        return {name: getattr(self.model, name) for name in self.model.model_fields_set}


Families = Mapping[str, PlacedFamily]


def load_cards(settings: Settings) -> Cards:
    """Every card.  A project's own card or family replaces the one that ships.

    Raises InputError with every fault.
    """
    paths = settings.find_hardware()
    if not any(path.is_relative_to(settings.project) for path in paths):
        return shipped_cards()
    faults: list[Fault] = []
    files = [
        (path.is_relative_to(settings.project), read)
        for path in paths
        if (read := read_file(HardwareFile, path, settings, faults))
    ]
    families = place_families(files, faults)
    chips: dict[str, Chip] = {}
    for of_project in (False, True):
        reads = [read for project, read in files if project is of_project]
        chips |= load_chips(reads, families, faults)
    faults.extend(names_twice(chips.values(), families))
    faults = blame_project(faults, files, families)
    if faults:
        raise InputError.of(sorted(dict.fromkeys(faults), key=lambda fault: fault.where))
    return Cards(MappingProxyType(chips), {n: proposed(f, families) for n, f in families.items()})


def blame_project(
    faults: Sequence[Fault], files: Iterable[tuple[bool, Read[HardwareFile]]], families: Families
) -> list[Fault]:
    """The faults; those in shipped files are reported where the project replaced a family."""
    read = tuple(files)
    shipped = tuple(f"{each.document.shown}:" for project, each in read if not project)
    blamed = [fault for fault in faults if not fault.where.startswith(shipped)]
    if len(blamed) == len(faults):
        return blamed
    names = {name for project, each in read if not project for name in each.file.families}
    for project, each in read:
        for name in names.intersection(each.file.families if project else ()):
            below = [n for n in families if families[name] in lineage(families[n], families)[:-1]]
            if below:
                what = f"replaces a shipped family that {listing(below[:3])} extend"
                hint = "rename it, or copy all keys of the family that it replaces"
                blamed.append(each.document.fault(("families", name), what, hint, of_key=True))
    return blamed


def proposed(family: PlacedFamily, families: Families) -> Sequence[ProposalModel]:
    """The proposals of a family, or else those of the nearest one that it extends."""
    inherited = (each.model.proposals for each in reversed(lineage(family, families)))
    return next((proposals for proposals in inherited if proposals), ())


@lru_cache(maxsize=1)  # of what ships, which does not change while the program runs
def shipped_cards() -> Cards:
    return load_cards(Settings(SHARE, Path(), Path(), Path()))


def find_chip(pci: str) -> Chip | None:
    """The chip that ships with this PCI id, if it is known; upper case does not matter."""
    return shipped_cards().find(pci)


def place_families(
    files: Iterable[tuple[bool, Read[HardwareFile]]], faults: list[Fault]
) -> Families:
    """Every family by name; those of the project replace shipped ones.  Checks each."""
    found: dict[str, PlacedFamily] = {}
    of_project: dict[str, bool] = {}
    for project, read in sorted(files, key=lambda each: each[0]):
        for name, model in read.file.families.items():
            origin = Origin(read.document, ("families", name))
            if of_project.get(name) is project:
                other = found[name].origin.document.shown
                what, hint = f"{other} also has a family of this name", "rename one of them"
                faults.append(read.document.fault(origin.path, what, hint, of_key=True))
            found[name], of_project[name] = PlacedFamily(model, origin), project
    for family in found.values():
        faults.extend(family_faults(family, found))
    return found


def family_faults(family: PlacedFamily, families: Families) -> Iterator[Fault]:
    """A fault for an unknown `extends`, and for each fact without a source."""
    origin, extends = family.origin, family.model.extends
    if extends is not None and extends not in families:
        what, hint = f"no family named {quote(extends)}", suggest(extends, families)
        yield origin.document.fault((*origin.path, "extends"), what, hint)
        return
    if above := cycle_of(family, families):
        what = f"families extend each other: {' -> '.join(above)}"
        yield origin.document.fault((*origin.path, "extends"), what, "remove one `extends:`")
        return
    if len(lineage(family, families)) > MOST_EXTENDED + 1:
        what = f"more than {MOST_EXTENDED} families extend each other"
        yield origin.document.fault((*origin.path, "extends"), what, "extend an earlier one")
        return
    yield from contradictions(family, families)
    known = {field.alias or name: name for name, field in FamilyModel.model_fields.items()}
    for key in family.model.sources:
        fact, _, version = key.partition(".")
        if known.get(fact) not in FACTS or (version and fact not in VERSIONS):
            hint = suggest(key, [k for k, name in known.items() if name in FACTS])
            what = f"{quote(key)} is not a fact of a family"
            yield origin.document.fault((*origin.path, "sources", key), what, hint, of_key=True)
    sourced = {key for each in lineage(family, families) for key in each.model.sources}
    for key, name in known.items():
        if name in FACTS & family.model.model_fields_set and key not in sourced:
            if key in VERSIONS:
                yield from unsourced(family, key, sourced)
                continue
            what, hint = "has no source", f"add its source: sources: {{{key}: ...}}"
            yield origin.document.fault((*origin.path, key), what, hint, of_key=True)


def unsourced(family: PlacedFamily, key: str, sourced: Set[str]) -> Iterator[Fault]:
    """A fault for each version without a source."""
    origin = family.origin
    for version in as_mapping(getattr(family.model, key)):
        if f"{key}.{version}" not in sourced:
            hint = f"add its source: sources: {{{key}.{version}: ...}}"
            path = (*origin.path, key, version)
            yield origin.document.fault(path, "has no source", hint, of_key=True)


def cycle_of(family: PlacedFamily, families: Families) -> list[str]:
    """The names from a family along `extends` back to itself; empty if there is no cycle, or if it
    is longer than a chain may be.
    """
    name = str(family.origin.path[-1])
    names = [name]
    while len(names) <= MOST_EXTENDED + 1 and (extends := families[names[-1]].model.extends):
        names.append(extends)
        if extends == name:
            return names
        if extends not in families or extends in names[:-1]:
            break
    return []


def contradictions(family: PlacedFamily, families: Families) -> Iterator[Fault]:
    """A fault for each pair of values that contradict each other."""
    origin = family.origin
    keys = merged(lineage(family, families)) if family.model.refuses else {}
    for interface in family.model.refuses:
        if interface in as_sequence(keys.get("computes")):
            what, hint = "is also under `computes`", "keep one of them"
            path = (*origin.path, "refuses", interface)
            yield origin.document.fault(path, what, hint, of_key=True)
    for ending, other in family.model.stand_ins.items():
        if ending.endswith(other) or other.endswith(ending):
            path = (*origin.path, "stand-ins", ending)
            yield origin.document.fault(path, "a file cannot stand in for itself", of_key=True)


def lineage(family: PlacedFamily, families: Families) -> list[PlacedFamily]:
    """The family and those that it extends, the most basic first; a cycle ends where it begins, and
    a chain when it is longer than it may be.
    """
    found = [family]
    while (above := families.get(found[0].model.extends or "")) and len(found) <= MOST_EXTENDED + 1:
        if any(above is each for each in found):
            break
        found.insert(0, above)
    return found


def load_chips(
    files: Iterable[Read[HardwareFile]], families: Families, faults: list[Fault]
) -> dict[str, Chip]:
    """The chips of the files of one place, by PCI id."""
    found: dict[str, Chip] = {}
    for read in files:
        for name, family in read.file.families.items():
            path: KeyPath = ("families", name)
            keys = merged(lineage(families[name], families))
            lacking = [k for k in NEEDED if not keys.get(k) and (k != "firmware" or k not in keys)]
            if family.cards and lacking:
                what = f"has cards but does not set {', '.join(lacking)}"
                faults.append(read.document.fault(path, what, of_key=True))
                continue
            for pci, names in family.cards.items():
                if pci in found:
                    what, hint = f"{found[pci].name} has the same PCI id", "keep one of them"
                    at = (*path, "cards", pci)
                    faults.append(read.document.fault(at, what, hint, of_key=True))
                sources = {**as_mapping(keys["sources"]), "cards": read.file.source}
                of_family = {**keys, "sources": sources}
                found[pci] = make_chip(pci, tuple(names.split(", ")), name, of_family)
    return found


def merged(line: Sequence[PlacedFamily]) -> dict[str, object]:
    """The keys of a family: those of the most basic first; sources add up, all else replaces."""
    keys: dict[str, object] = {}
    for family in line:
        sources = {**as_mapping(keys.get("sources")), **family.model.sources}
        keys |= {**family.keys, "sources": sources}
    return keys


def as_sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def as_mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def make_chip(pci: str, names: tuple[str, ...], family: str, keys: Mapping[str, object]) -> Chip:
    """The chip with these keys of its family; other fields have their defaults."""
    values = {
        field.name: tuple(value) if isinstance(value, list) else value
        for field in fields(Chip)
        if (value := keys.get(field.name)) is not None
    }
    defaults = {"architecture": "", "target": ""}
    return Chip(**{**defaults, **values, "pci": pci, "names": names, "family": family})  # type: ignore[arg-type]  # the model has checked each


def names_twice(chips: Iterable[Chip], families: Families) -> Iterator[Fault]:
    """A fault for each name that two cards share: a recipe may refer to a card by name."""
    owners: dict[str, str] = {}
    for chip in chips:
        for name in chip.names:
            other = owners.setdefault(name.casefold(), chip.pci)
            if other != chip.pci:
                origin = families[chip.family].origin
                what = f"{other} is also named {quote(name)}"
                hint = "add something that tells them apart, such as the PCI id"
                yield origin.document.fault((*origin.path, "cards", chip.pci), what, hint)
