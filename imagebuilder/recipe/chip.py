# SPDX-License-Identifier: Apache-2.0
"""What is known of an accelerator by its PCI id, as hardware/*.yaml has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import cast

from imagebuilder.digest import Json

# Keys whose values each have a source of their own.
VERSIONS = ("minimum", "maximum")
# The prefix of a source whose version is left out.
UNCONFIRMED = "not confirmed: "


@dataclass(frozen=True)
class Chip:
    """An accelerator: `pci` as `1002:7480`, the kernel modules one of which drives it, and the
    firmware that module asks for.  `target` is "" for a chip whose code has no target.

    `firmware` are globs below /usr/lib/firmware, without `.xz` or `.zst`; `optional` are files
    that the driver can do without, each with the reason.  Of each pair of file name endings in
    `stand_ins` the driver wants the first but also works with the second.  `beside` are modules
    that programs need as well as the driver, `programs` what some machines need, with the reason;
    `group` owns its device nodes by the distribution's rules, "" if everybody may use them.
    `refuses` says why an interface does not compute on it; `minimum` and `maximum` are versions
    of kernel, driver, mesa, rocm, cuda and level-zero; `sources` has one for each fact, by key
    (`minimum`) or for one version (`minimum.cuda`).  `integrated` graphics are a processor's;
    `processor` is that of all machines that have the chip, "" for any.
    """

    pci: str
    names: tuple[str, ...]
    family: str
    vendor: str
    architecture: str
    target: str
    modules: tuple[str, ...]
    firmware: tuple[str, ...]
    optional: Mapping[str, str] = field(default_factory=dict)
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    computes: tuple[str, ...] = ()
    refuses: Mapping[str, str] = field(default_factory=dict)
    minimum: Mapping[str, str] = field(default_factory=dict)
    maximum: Mapping[str, str] = field(default_factory=dict)
    integrated: bool = False
    processor: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Every name it is sold under."""
        return ", ".join(self.names)

    def as_json(self) -> dict[str, Json]:
        return cast("dict[str, Json]", json.loads(json.dumps(asdict(self))))

    def row(self) -> tuple[str, ...]:
        """The columns of `hardware list`."""
        computes = ", ".join(self.computes)
        return self.pci, self.name, self.architecture, self.target, computes, self.kernel

    def render(self) -> str:
        """Each known fact on a line, with its source below it."""
        lines = [f"{self.pci}  {self.name}"]
        for key, value in self.as_json().items():
            if key in VERSIONS and isinstance(value, Mapping):
                lines += self.render_versions(key, value)
            elif value and key not in ("pci", "names", "sources"):
                source = self.sources.get(key.replace("_", "-"), "")
                lines += ["", f"{key.replace('_', '-')}:{text_of(value)}"]
                lines += [f"  from {source}"] if source else []
        return "\n".join(lines)

    def render_versions(self, key: str, versions: Mapping[str, Json]) -> list[str]:
        """Each version with its source, then the versions that nobody could confirm."""
        of_one = {
            name.removeprefix(f"{key}."): source
            for name, source in self.sources.items()
            if name.startswith(f"{key}.")
        }
        lines = []
        for name, version in versions.items():
            lines.append(f"  {name}: {version}")
            lines += [f"    from {of_one[name]}"] if name in of_one else []
        lines += [
            f"  {name}: {source}"
            for name, source in of_one.items()
            if name not in versions and source.startswith(UNCONFIRMED)
        ]
        whole = self.sources.get(key, "") if versions.keys() - of_one.keys() else ""
        lines += [f"  from {whole}"] if whole else []
        return ["", f"{key}:", *lines] if lines else []

    @property
    def kernel(self) -> str:
        """The oldest Linux that supports it, "" if not known."""
        return self.minimum.get("kernel", "")


def text_of(value: Json) -> str:
    """A fact for people: a list in one line, a mapping with a line each."""
    if isinstance(value, list):
        return f" {', '.join(map(str, value))}"
    if isinstance(value, Mapping):
        return "".join(f"\n  {name}: {said}" for name, said in value.items())
    return f" {value}"
