# SPDX-License-Identifier: Apache-2.0
"""The web server tells a real receiver of 800 nodes, and is killed while it does."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from tests.fleet_world import OLD, FleetWorld, make_world
from tests.integration.started import PATIENCE, Started, start, wait_until
from tests.ports import free_port
from tests.unit.notify.servers import TOKEN, Hook, web_server

JUST = timedelta(0)


def start_web(world: FleetWorld, top: Path) -> Started:
    """`imagebuilder web`, with the site file in `top`."""
    argv = [sys.executable, "-m", "imagebuilder.cli.main", "--state", str(top / "state"), "web"]
    more = ["--tree", str(world.tree.path), "--listen", f"127.0.0.1:{free_port()}", "--ask", "5"]
    env = {"HOME": os.fspath(top), "IMAGEBUILDER_SITE": str(top / "site.yaml")}
    return start([*argv, *more], env, top / f"web-{time.monotonic_ns()}")


def kill(web: Started) -> None:
    web.send(signal.SIGKILL)
    assert web.wait(PATIENCE) == -signal.SIGKILL


def told(hook: Hook) -> list[tuple[object, object]]:
    """The id and the counts of each request."""
    found = []
    for _, body in hook.requests:
        nodes = body["nodes"]
        assert isinstance(nodes, dict)
        found.append((body["id"], nodes["counts"]))
    return found


def test_a_killed_server_repeats_nothing_and_loses_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    with web_server(200) as hook:
        (tmp_path / "site.yaml").write_text(
            "notify:\n  gather: 5\n  silent-after: 0\n"
            f"  to:\n    chat: {{webhook: '{hook.address}'}}\n"
        )
        file = tmp_path / "state/notify/nodes.json"
        web = start_web(world, tmp_path)
        wait_until(file.exists, "nothing was written down")
        for index in range(800):  # their boots fail, all at once
            world.report(index, "failed", OLD, JUST)
        wait_until(lambda: bool(hook.requests), "nobody was told")
        ((_, counts),) = told(hook)
        assert counts == {"failed": 796}, "four had failed before"
        wait_until(lambda: '"waiting": []' in file.read_text(), "it is still to be sent")
        kill(web)

        hook.statuses[:] = [0]  # from now on it hangs
        web = start_web(world, tmp_path)
        for index in range(3):
            world.report(index, "switch-root", OLD, timedelta(days=1))  # silent
        wait_until(lambda: len(hook.requests) == 2, "nobody was told of the next")
        kill(web)
        for index in range(3, 5):
            world.report(index, "switch-root", OLD, timedelta(days=1))  # while nobody looks
        hook.statuses[:] = [200]
        web = start_web(world, tmp_path)
        wait_until(lambda: len(hook.requests) == 4, "somebody was not told")
        _, hanging, again, last = told(hook)
        assert hanging == again, "also its id"
        assert again[1] == {"silent": 3}
        assert last[1] == {"silent": 2}
        web.send(signal.SIGTERM)
        assert web.wait(PATIENCE) == 130
        assert len(hook.requests) == 4
    assert TOKEN not in web.stderr + file.read_text()
