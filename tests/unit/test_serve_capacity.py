# SPDX-License-Identifier: Apache-2.0
"""The web server has more connections than one address has ports."""

from __future__ import annotations

import pytest

from imagebuilder.serve.capacity import PORTS_OF_AN_ADDRESS, find_capacity, plan_capacity


@pytest.mark.parametrize("cpus", [1, 2, 3, 7, 16, 128])
def test_one_address_cannot_take_all(cpus: int) -> None:
    capacity = plan_capacity(cpus, 1 << 19)
    assert capacity.workers * capacity.connections > PORTS_OF_AN_ADDRESS * 1.2
    assert capacity.files > capacity.connections + 1000
    assert capacity.workers == min(cpus, 16)


@pytest.mark.parametrize("most", [512, 1024, 20000])
def test_no_more_connections_than_files(most: int) -> None:
    capacity = plan_capacity(2, most)
    assert capacity.connections < capacity.files <= max(most, 1024)


def test_the_unit_has_its_own_limit() -> None:
    capacity = find_capacity(installed=True)
    assert capacity.workers * capacity.connections > PORTS_OF_AN_ADDRESS
