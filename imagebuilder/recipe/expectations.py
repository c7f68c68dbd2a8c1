# SPDX-License-Identifier: Apache-2.0
"""What the overlays of a profile expect of its image: the `proof:` keys, resolved and joined.

It is written into the image's manifest, so that an image is judged by what it was built for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, TypeVar, cast

from imagebuilder.digest import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True)
class Code:
    """Files (globs, each matches) that carry code for `target`; `accept` is native or forward."""

    files: tuple[str, ...]
    target: str
    accept: str = "native"


@dataclass(frozen=True)
class PythonWorks:
    """An environment that imports `imports`, and what its torch is made for.

    `platform` is cpu, cuda, rocm or xpu; `cuda` a version (`12.8`) or ""; `target` one or "".
    """

    path: str
    imports: tuple[str, ...]
    platform: str = "cpu"
    cuda: str = ""
    target: str = ""


@dataclass(frozen=True)
class Device:
    """A device node (path or glob) and the group that may use it ("": everybody may)."""

    path: str
    group: str = ""


@dataclass(frozen=True)
class RefusedArgument:
    """An argument that a service must not have, and what happens with it."""

    argument: str
    because: str


@dataclass(frozen=True)
class Service:
    """A service that uses the accelerator, whether it locks memory, what it must not be told."""

    unit: str
    memlock: bool = False
    refuses: tuple[RefusedArgument, ...] = ()


@dataclass(frozen=True)
class ExpectedEngine:
    """An inference engine, its backends (best first; none: the processor), and whether it may fall
    back to the processor.  `path` is its Python environment, `unit` its service.
    """

    engine: str
    backends: tuple[str, ...] = ()
    path: str = ""
    unit: str = ""
    allow_cpu: bool = False


@dataclass(frozen=True)
class Expectations:
    """What must be true of an image; every field adds up over overlays.

    `cuda` are the versions of CUDA that the driver must serve.
    """

    modules: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    code: tuple[Code, ...] = ()
    libraries: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    python: tuple[PythonWorks, ...] = ()
    devices: tuple[Device, ...] = ()
    users: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    engines: tuple[ExpectedEngine, ...] = ()

    @property
    def units(self) -> tuple[str, ...]:
        named = [each.unit for group in (self.engines, self.services) for each in group]
        return tuple(dict.fromkeys(filter(None, named)))


def joined(kind: type[T], given: Iterable[T]) -> T:
    """All of `given`, whose fields are tuples, in one, each thing once."""
    listed = list(given)
    return kind(
        **{
            field.name: tuple(dict.fromkeys(x for one in listed for x in getattr(one, field.name)))
            for field in fields(kind)
        }
    )


def plain(expectations: Expectations) -> dict[str, Json]:
    """As JSON for digests and manifests, equal to what is read back from one."""
    return cast("dict[str, Json]", json.loads(json.dumps(asdict(expectations))))
