# SPDX-License-Identifier: Apache-2.0
"""Detect the accelerators of a machine by its PCI devices, and propose a recipe."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.digest import Json
from imagebuilder.errors import Fault, HostError, InputError
from imagebuilder.files import write_file
from imagebuilder.process import run
from imagebuilder.recipe.cards import Cards, load_cards
from imagebuilder.recipe.chip import Chip
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.model_hardware import ProposalModel
from imagebuilder.recipe.model_words import VarValue
from imagebuilder.recipe.rules import NAME
from imagebuilder.settings import Settings
from imagebuilder.ssh import HOST_OPTIONS, find_hint, option_words, ssh_environment
from imagebuilder.untrusted import MOST_REQUEST, clean_lines

DEVICES = Path("/sys/bus/pci/devices")
# PCI classes of display controllers and of processing accelerators (PCI Code and ID Assignment).
ACCELERATORS = ("0x03", "0x12")
# The same files as in read_devices().
REMOTE = f"cd {DEVICES} && grep -s . */vendor */device */class"
# What it prints, whatever a login script prints before it.
FOUND = re.compile(
    r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/(?:vendor|device|class)):(0x[0-9a-f]{4,6})\r?$",
    re.MULTILINE,
)
MOST_SAID = 1 << 20  # characters: thousands of devices
ANSWER_S = 60.0
SAID_LINES = 3  # of an ssh that failed
TARGET = "{target}"
ONE_BASE = Fault(
    "", "no base supports all of these cards", "make a profile for the cards of each vendor"
)
COMMON = ("netboot", "ssh", "compute-node")
# A missing ssh key of the person must not be a fault of the proposal.
TRIAL_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJt6Tr9NVdSbpOyNCbLStsmOHO3rBIAZTTIPpDFoXy0x trial"


@dataclass(frozen=True)
class PciDevice:
    """A device of a machine: its slot, its id (`1002:7480`) and its class (`0x030000`)."""

    slot: str
    pci: str
    kind: str


@dataclass(frozen=True)
class Detected:
    """The accelerators of a machine: `found` with known facts, `recipe` the text of a recipe for
    all known ones ("" if none can be built), `refused` why other recipes cannot be built.
    `nearest` is then the recipe that lacks least, for the reasons `lacks`.
    `left_out` of the recipe are GPUs in the processor of a machine with a card.
    """

    machine: str
    found: tuple[tuple[PciDevice, Chip | None], ...]
    recipe: str = ""
    refused: tuple[Fault, ...] = ()
    left_out: tuple[PciDevice, ...] = ()
    nearest: str = ""
    lacks: tuple[Fault, ...] = ()

    def as_json(self) -> dict[str, Json]:
        return {
            "machine": self.machine,
            "devices": [
                {
                    "slot": device.slot,
                    "pci": device.pci,
                    "class": device.kind,
                    "names": list(chip.names) if chip else [],
                    "target": chip.target if chip else "",
                }
                for device, chip in self.found
            ],
            "recipe": self.recipe or None,
            "nearest": self.nearest or None,
            "refused": [str(fault) for fault in self.refused],
            "left_out": [device.pci for device in self.left_out],
        }


def read_devices(folder: Path = DEVICES) -> tuple[PciDevice, ...]:
    found = {
        f"{path.name}/{name}": (path / name).read_text().strip()
        for path in sorted(folder.glob("*"))
        for name in ("vendor", "device", "class")
        if (path / name).is_file()
    }
    return devices_of(found)


def ask_devices(host: str) -> tuple[PciDevice, ...]:
    """The PCI devices of another machine, over ssh.  Raises HostError."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*", host):
        raise InputError("is not the name of a machine", where=host, hint="write [USER@]HOST")
    argv = ["ssh", *option_words(HOST_OPTIONS), "--", host, REMOTE]
    done = run(argv, env=ssh_environment(), seconds=ANSWER_S, check=False)
    if done.late:
        hint = "connect by hand with ssh, and see what it waits for"
        raise HostError(f"did not answer within {ANSWER_S:g} s", where=host, hint=hint)
    devices = devices_of(dict(FOUND.findall(done.stdout[:MOST_SAID])))
    if not devices:
        # In one line: another one could look like a hint of ours.
        lines = clean_lines(done.stderr.strip()[-MOST_REQUEST:]).splitlines()
        said = " / ".join(line.strip() for line in lines[-SAID_LINES:])
        raise HostError(said or f"has no {DEVICES}", where=host, hint=find_hint(said))
    return devices


def devices_of(files: Mapping[str, str]) -> tuple[PciDevice, ...]:
    """Devices from the content of their files, `SLOT/vendor` and so on."""
    slots = dict.fromkeys(key.rpartition("/")[0] for key in files)
    return tuple(
        PciDevice(slot, f"{vendor[2:6]}:{device[2:6]}", files.get(f"{slot}/class", ""))
        for slot in slots
        if (vendor := files.get(f"{slot}/vendor", "")) and (device := files.get(f"{slot}/device"))
    )


def detect(machine: str, devices: Sequence[PciDevice], settings: Settings) -> Detected:
    """Detect the accelerators and propose a recipe.  Raises InputError for a hardware file."""
    cards = load_cards(settings)
    known = [(device, cards.find(device.pci)) for device in devices]
    found = tuple(
        (device, chip) for device, chip in known if chip or device.kind.startswith(ACCELERATORS)
    )
    chips = list(dict.fromkeys(chip.pci for _, chip in found if chip))
    if not chips:
        return Detected(machine, found)
    wanted = [chip for pci in chips if not (chip := cards.chips[pci]).integrated]
    wanted = wanted or [cards.chips[pci] for pci in chips]
    left_out = tuple(device for device, chip in found if chip and chip not in wanted)
    recipe, refused = propose(wanted, cards, settings)
    tried = [] if recipe else [(t, try_recipe(t, settings)) for t in proposals(wanted, cards)]
    nearest, lacks = min(tried, key=lambda each: len(each[1]), default=("", ()))
    return Detected(machine, found, recipe, refused, left_out, nearest, lacks)


def propose(
    chips: Sequence[Chip], cards: Cards, settings: Settings
) -> tuple[str, tuple[Fault, ...]]:
    """The text of the first recipe for all `chips` that can be built, or "" and every reason."""
    refused = [ONE_BASE] if len(chips) > 1 and not any(proposals(chips, cards)) else []
    for text in proposals(chips, cards):
        faults = try_recipe(text, settings)
        if not faults:
            return text, ()
        refused.extend(faults)
    return "", tuple(dict.fromkeys(refused))


def proposals(chips: Sequence[Chip], cards: Cards) -> Iterator[str]:
    """Candidate recipes for all `chips` together, best first."""
    families: dict[str, list[Chip]] = {}
    for chip in chips:
        families.setdefault(chip.family, []).append(chip)
    ways = [cards.proposals.get(family, ()) for family in families]
    for choice in itertools.product(*ways):
        joined = join_proposals(list(zip(choice, families.values(), strict=True)))
        if joined:
            yield render_recipe(joined, chips)


def join_proposals(parts: Sequence[tuple[ProposalModel, Sequence[Chip]]]) -> ProposalModel | None:
    """One proposal that combines `parts`; None if they conflict."""
    values: dict[str, VarValue] = {}
    targets: dict[str, list[str]] = {}
    for model, chips in parts:
        for name, value in model.vars.items():
            before = values.get(name)
            if value == TARGET:
                targets.setdefault(name, []).extend(chip.target for chip in chips)
            elif isinstance(before, list) and isinstance(value, list):
                values[name] = list(dict.fromkeys([*before, *value]))
            elif before in (None, value):
                values[name] = value
            else:
                return None
    for name, found in targets.items():
        each = list(dict.fromkeys(found))
        values[name] = each if len(each) > 1 else each[0]
    bases = {model.base for model, _ in parts}
    if len(bases) > 1:
        return None
    # Inference engines come after the drivers of every vendor.
    named = [name for model, _ in parts for name in model.overlays]
    shared = [name for name in dict.fromkeys(named) if named.count(name) > 1]
    ordered = [*(name for name in dict.fromkeys(named) if name not in shared), *shared]
    return ProposalModel(base=bases.pop(), overlays=ordered, vars=values)


def render_recipe(proposal: ProposalModel, chips: Sequence[Chip]) -> str:
    overlays = ", ".join((*COMMON, *proposal.overlays))
    lines = [
        f"description: Nodes with {' and '.join(chip.names[0] for chip in chips)}",
        f"base: {proposal.base}",
        f"overlays: [{overlays}]",
        "hardware:",
        *(f'  - pci: "{chip.pci}"  # {chip.name}' for chip in chips),
    ]
    if proposal.vars:
        lines.append("vars:")
        lines += [f"  {name}: {json.dumps(value)}" for name, value in proposal.vars.items()]
    return "\n".join(lines) + "\n"


def try_recipe(text: str, settings: Settings) -> tuple[Fault, ...]:
    """What is wrong with a recipe in this project; writes nothing."""
    with TemporaryDirectory() as name:
        work = Path(name)
        (work / "recipes").mkdir()
        for folder in ("overlays", "hardware", "recipes/bases"):
            if (settings.project / folder).is_dir():
                (work / folder).symlink_to(settings.project / folder)
        keyed = f"  ssh_authorized_keys: [{json.dumps(TRIAL_KEY)}]\n"
        (work / "recipes/detected.yaml").write_text(
            f"{text}{keyed}" if "\nvars:\n" in text else f"{text}vars:\n{keyed}"
        )
        try:
            load_recipe("detected", replace(settings, project=work))
        except InputError as error:
            return error.faults
    return ()


def write_recipe(name: str, text: str, settings: Settings) -> Path:
    """Write recipes/NAME.yaml of the project.  Raises InputError if it cannot have the name."""
    settings.check_project()
    if not NAME.pattern.fullmatch(name):
        raise InputError(f"is not {NAME.what}", where=name)
    path = settings.recipes / f"{name}.yaml"
    if path.exists():
        raise InputError("already exists", where=f"recipes/{name}.yaml", hint="choose another name")
    write_file(path, text.encode(), 0o644)
    return path
