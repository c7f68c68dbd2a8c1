# SPDX-License-Identifier: Apache-2.0
"""What tests share: signals that work, and `generic`, really built, once a session."""

from __future__ import annotations

import signal

import pytest

from tests.workshop import Workshop, make_workshop


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """What we start can be interrupted, also when we run in the background or under nohup(1)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The shipped recipes with `generic` built from the host's mirror."""
    made = make_workshop(tmp_path_factory.mktemp("workshop"))
    made("build", "generic")
    return made
