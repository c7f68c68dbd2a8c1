# SPDX-License-Identifier: Apache-2.0
"""Sockets in a /tmp that two services do not share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.units.reach import prove_private_tmp
from imagebuilder.recipe.expectations import Expectations, ExpectedEngine
from tests.unit.proof.trees import make_tree, running, subject, warnings

MPS = "/usr/bin/nvidia-cuda-mps-control -d"
PRIVATE = {"PrivateTmp": "yes"}
Values = Mapping[str, str]
Services = tuple[tuple[str, str, Values], ...]


def unit(name: str, line: str, values: Values) -> LoadedUnit:
    loaded = {"Unit Load State": ("loaded",), **{key: (value,) for key, value in values.items()}}
    words = tuple(line.split())
    return LoadedUnit(name, (f"/etc/systemd/system/{name}",), loaded, {"ExecStart": (words,)})


def told(tree: Path, *services: tuple[str, str, Values], cuda: str = "") -> list[str]:
    expected = Expectations(engines=(ExpectedEngine("vllm", ("cuda",), unit=cuda),) if cuda else ())
    about = subject(make_tree(tree, {"/etc/x": ""}), expectations=expected)
    about.__dict__["shipped"] = {}
    units = {name: unit(name, line, values) for name, line, values in services}
    return warnings(prove_private_tmp(running(about, Startup(frozenset(units), {}, units, ()))))


@pytest.mark.parametrize(
    ("daemon", "engine", "count"),
    [
        ({}, PRIVATE, 1),
        ({}, {"PrivateTmp": "disconnected"}, 1),
        ({}, {"DynamicUser": "yes"}, 1),
        (PRIVATE, {}, 1),
        (PRIVATE, PRIVATE, 1),
        ({}, {}, 0),
        (PRIVATE, {**PRIVATE, "JoinsNamespaceOf": "mps.service (origin-file)"}, 0),
        ({}, {**PRIVATE, "BindPaths": "/tmp/nvidia-mps"}, 0),
        ({"Environment": "CUDA_MPS_PIPE_DIRECTORY=/run/mps"},
         {**PRIVATE, "Environment": "CUDA_MPS_PIPE_DIRECTORY=/run/mps"}, 0),
        ({"Environment": "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps"},
         {**PRIVATE, "Environment": "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps"}, 1),
        # Without MPS on purpose.
        ({}, {**PRIVATE, "Environment": "CUDA_MPS_PIPE_DIRECTORY=/dev/null"}, 0),
    ],
)  # fmt: skip
def test_the_pipes_of_mps(daemon: Values, engine: Values, count: int, tmp_path: Path) -> None:
    services: Services = (("mps.service", MPS, daemon), ("a.service", "/usr/bin/serve", engine))
    found = told(tmp_path, *services, cuda="a.service")
    said = "a.service and mps.service do not share /tmp/"
    assert [what.startswith(said) for what in found] == [True] * count


def test_a_service_that_does_not_compute(tmp_path: Path) -> None:
    services: Services = (("mps.service", MPS, {}), ("a.service", "/usr/bin/serve", PRIVATE))
    assert told(tmp_path, *services) == []


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        ("/usr/bin/a --bind unix:/tmp/a.sock", "/usr/bin/b --to unix:///tmp/a.sock", 1),
        ("/usr/bin/a --bind=ipc:///tmp/pipe", "/usr/bin/b ipc:///tmp/pipe", 1),
        ("/usr/bin/a --bind unix:/run/a.sock", "/usr/bin/b unix:/run/a.sock", 0),
        ("/usr/bin/a --bind unix:/tmp/a.sock", "/usr/bin/b unix:/tmp/b.sock", 0),
        # Each may have files of its own.
        ("/usr/bin/a --cache /tmp/cache", "/usr/bin/b --cache /tmp/cache", 0),
        ("/usr/bin/a /srv/tmp/a.sock", "/usr/bin/b /srv/tmp/a.sock", 0),
    ],
)
def test_sockets_that_two_services_name(
    first: str, second: str, count: int, tmp_path: Path
) -> None:
    services: Services = (("a.service", first, {}), ("b.service", second, PRIVATE))
    assert len(told(tmp_path, *services)) == count
