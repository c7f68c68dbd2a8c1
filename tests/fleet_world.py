# SPDX-License-Identifier: Apache-2.0
"""A tree with many nodes in every condition, and a web server on it, for tests and pictures."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from imagebuilder.digest import digest_of
from imagebuilder.fleet.rollout.journal import save_rollout
from imagebuilder.fleet.rollout.types import (
    Rollout,
    RolloutNode,
    RolloutStage,
    RolloutStatus,
)
from imagebuilder.fleet.state import Observation
from imagebuilder.image.proof import Answer, Finding, Level, Proof, Question
from imagebuilder.image.types import (
    BootFile,
    Image,
    ImageKernel,
    ImagePackage,
    ImageRoot,
    ImageSource,
    encode_image,
)
from imagebuilder.nightly.save import save_run
from imagebuilder.nodes.config import read_served
from imagebuilder.nodes.evidence.consoles import NAME, SUFFIX
from imagebuilder.nodes.evidence.dhcp_clients import DhcpClient, write_dhcp_clients
from imagebuilder.nodes.evidence.health_report import note_health
from imagebuilder.nodes.evidence.seen import SEEN, HealthReport, Seen
from imagebuilder.nodes.files import update_nodes
from imagebuilder.recipe.cards import shipped_cards
from imagebuilder.tree import ReleaseName, Tree, close_tree, make_tree
from imagebuilder.web.act_client import ActClient
from imagebuilder.web.app import make_app
from imagebuilder.web.listen import STALLED_MS, open_socket
from imagebuilder.web.run import make_config
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import SnapshotMaker
from imagebuilder.web.stream import Broker
from imagebuilder.web.watch import Watcher
from tests.images import IMAGE
from tests.unit.nightly.samples import make_nights
from tests.unit.nodes_world import move_channel
from tests.unit.planted_reports import NO_ROOT, PASSED, make_report, plant

OLD, NEW = "20261121023007-8f1c04d2", "20261123021544-a07e9b35"
PROFILES = ("rx7600xt", "generic")
BANNER = "answers to ssh: SSH-2.0-OpenSSH_10.0p2 Debian-7"


@cache
def saved_nights() -> TemporaryDirectory[str]:
    """In `reports` there, nine nightly runs: each is written after the one before, and synced."""
    folder = TemporaryDirectory(prefix="imagebuilder-nights-")
    for night in make_nights(9, ("rx7600xt", "generic", "minimal")):
        save_run(night, Path(folder.name, "reports"))
    return folder


def mac_of(index: int) -> str:
    return f"52:54:00:77:{index // 256:02x}:{index % 256:02x}"


def address_of(index: int) -> str:
    return f"10.77.{index // 250}.{index % 250 + 1}"


def name_of(index: int) -> str:
    return f"node{index:03}"


WORDS = {
    "ok": "5 checks passed",
    "missing device": "pci: no PCI device 1002:7480 (Radeon RX 7600 XT)",
    "degraded": "llama-cpp: generates 11 tokens/s, 34 before",
}


def make_health(verdict: str, index: int = 0, ago: timedelta = timedelta(0)) -> HealthReport:
    at = (datetime.now(UTC) - ago).isoformat(timespec="seconds")
    uptime = 86_400.0 * 30 - ago.total_seconds()
    used = (9 + index * 7 % 51) << 30
    readings = (
        f"processor-celsius:{41 + index % 23},card-celsius:{48 + index * 5 % 37},"
        f"memory-used:{used},memory-size:{64 << 30},card-memory-used:{used // 5},"
        f"card-memory-size:{16 << 30},speed:{97 - 64 * (verdict == 'degraded')}"
    )
    told = readings if index % 8 != 7 else None  # an image from before there were any
    return HealthReport(verdict, WORDS[verdict], "0" * 8, uptime, at, told)


@dataclass(frozen=True)
class FleetWorld:
    """The tree, the folder of nightly reports, and what the ssh servers of nodes answered."""

    tree: Tree
    reports: Path
    answers: dict[str, Observation]

    def report(
        self, index: int, stage: str, version: str, ago: timedelta, verdict: str = ""
    ) -> None:
        """A node reported a stage, and perhaps its health just now.

        Not synced: these are many, and nobody pulls a plug.
        """
        profile = PROFILES[index % 8 == 7]
        last = (datetime.now(UTC) - ago).isoformat(timespec="seconds")
        seen = Seen(
            mac_of(index), name_of(index), profile, version, address_of(index), stage, "nfs",
            last, last, health=make_health(verdict, index) if verdict else None,
        )  # fmt: skip
        place = self.tree.seen(seen.mac)
        staged = place.with_name(f".{place.name}")
        staged.write_text(json.dumps(SEEN.encode(seen)))
        staged.rename(place)

    def plant_history(self) -> None:
        """A roll-out that stopped, nightly runs, boot tests, and machines that nobody adopted."""
        stages = (RolloutStage.DONE, RolloutStage.RETURNED, RolloutStage.WAITING)
        nodes = tuple(
            RolloutNode(name_of(index), min(index, 2), stages[(index > 5) + (index > 6)],
                        why="its health is missing device: pci: no 1002:7480" * (index == 6))
            for index in range(40)
        )  # fmt: skip
        begun = (datetime.now(UTC) - timedelta(minutes=42)).isoformat(timespec="seconds")
        save_rollout(self.tree, Rollout(
            "rx7600xt", OLD, NEW, "ada", begun, nodes, status=RolloutStatus.STOPPED,
            why="node006 failed",
        ))  # fmt: skip
        shutil.copytree(Path(saved_nights().name, "reports"), self.reports, dirs_exist_ok=True)
        for number, (profile, version) in enumerate(itertools.product(PROFILES, (OLD, NEW)), 1):
            release = ReleaseName(profile, version)
            sums = (f"{number:064x}  {name}\n" for name in ("vmlinuz", "initrd.img", "boot.ipxe"))
            self.tree.release(release).joinpath("SHA256SUMS").write_text("".join(sums))
            commit = self.tree.repo / "refs/heads/root" / profile / version
            commit.parent.mkdir(parents=True, exist_ok=True)
            commit.write_text(f"{number:064x}\n")
            verdict = NO_ROOT if (profile, version) == ("generic", OLD) else PASSED
            plant(self.tree, make_report(self.tree, str(release), number, verdict=verdict))
        close_tree(self.tree)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_dhcp_clients(self.tree, [
            DhcpClient("52:54:00:aa:00:01", "PXEClient", 7, "10.77.9.20", now, now),
            DhcpClient("52:54:00:aa:00:02", "", None, "", now, now),
        ])  # fmt: skip

    def plant_console(self, index: int, *boots: Sequence[str]) -> None:
        """What the kernel of a node said in its last boots, the last one last."""
        folder = self.tree.consoles(name_of(index))
        folder.mkdir(parents=True, exist_ok=True)
        for hours, lines in enumerate(reversed(boots)):
            at = datetime.now(UTC) - timedelta(hours=30 * hours, minutes=12)
            text = "".join(f"[{0.4 * n:12.6f}] {line}\n" for n, line in enumerate(lines))
            (folder / f"{at:{NAME}}{SUFFIX}").write_text(text)

    def plant_health(self, index: int, *verdicts: str) -> None:
        """What a node said of its health, the last one last."""
        for hours, verdict in reversed([*enumerate(reversed(verdicts))]):
            report = make_health(verdict, index, timedelta(hours=7 * hours + 1))
            note_health(self.tree, name_of(index), [(ReleaseName(PROFILES[0], OLD), report)])

    def plant_drift(self, index: int) -> None:
        """A node booted before nodes.yaml gave it another command line; all nodes are served."""
        self.set_node(index, "netconsole: true")
        given = self.serve_nodes(index)
        place = self.tree.seen(mac_of(index))
        place.write_text(json.dumps({**json.loads(place.read_text()), "given": given}))
        self.set_node(index, "cmdline: [amdgpu.runpm=0]")
        self.serve_nodes(index)

    def set_node(self, index: int, what: str) -> None:
        """Add something to a node in nodes.yaml."""
        text, entry = self.tree.nodes_file.read_text(), f"  {name_of(index)}: {{"
        self.tree.nodes_file.write_text(text.replace(entry, f"{entry}{what}, "))

    def serve_nodes(self, index: int) -> str:
        """Make what nodes fetch; the ID of what one of them is given."""
        update_nodes(self.tree)
        served = read_served(self.tree, mac_of(index))
        assert served
        return served.config

    def plant_boots(self, index: int) -> None:
        """What the boot server logged of a node: a boot that went well, one that failed."""
        lines = []
        for hours, version, stages in (
            (30, OLD, (("network", 21), ("root", 25), ("overlay", 27), ("switch-root", 28))),
            (0, OLD, (("network", 22), ("root", 27), ("failed", 87))),
        ):
            begun = datetime.now(UTC) - timedelta(hours=hours, minutes=12)
            secret = f"{hours:032x}"
            hyphened = mac_of(index).replace(":", "-")
            said = {"time": begun.isoformat(timespec="seconds"), "address": address_of(index)}
            lines.append({**said, "uri": f"/nodes/{hyphened}/boot.ipxe", "ticket": secret})
            for stage, seconds in stages:
                at = (begun + timedelta(seconds=seconds)).isoformat(timespec="seconds")
                uri = f"/report/{secret}/rx7600xt/{version}?stage={stage}&node={mac_of(index)}"
                lines.append({**said, "time": at, "uri": uri, "agent": "curl"})
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        self.tree.reports_log.write_text(text)
        logs = self.tree.serve / "logs"
        logs.mkdir(exist_ok=True)
        name, address = hyphened.replace("-", ":"), address_of(index)
        logs.joinpath("dnsmasq.log").write_text(
            f"dnsmasq-dhcp[812]: 77 vendor class: PXEClient:Arch:00007:UNDI:003016\n"
            f"dnsmasq-dhcp[812]: 77 DHCPDISCOVER(br0) {name}\n"
            f"dnsmasq-dhcp[812]: 77 DHCPACK(br0) {address} {name} {name_of(index)}\n"
            f"dnsmasq-tftp[812]: sent /srv/netboot/tftp/ipxe.efi to {address}\n"
        )
        failed = f"/report/rx7600xt/{OLD}?stage=failed&at=root&node={mac_of(index)}"
        logs.joinpath("nginx.log").write_text(
            f"{address} 200 1204 0.000 /boot.ipxe\n"
            f"{address} 200 811 0.000 /nodes/{hyphened}/boot.ipxe\n"
            f"{address} 200 13841536 0.151 /releases/rx7600xt/{OLD}/vmlinuz\n"
            f"{address} 200 48213772 0.498 /releases/rx7600xt/{OLD}/initrd.img\n"
            f"{address} 204 0 0.000 {failed}\n"
        )


def make_image(profile: str, version: str) -> Image:
    """An image whose newer version has two packages more recent, one from a security pocket."""
    newer = version == NEW
    sources = (
        ImageSource("debian:trixie", "trixie", ("main",), 1, "s", "", ""),
        ImageSource(
            "debian-security:trixie-security", "trixie-security", ("main",), 1, "s", "", ""
        ),
    )
    versions = (
        ("bash", "5.2.37-2", "debian:trixie"),
        ("mesa-vulkan-drivers", "25.0.7-3" if newer else "25.0.7-2", "debian:trixie"),
        ("openssl", "3.5.4-1~deb13u2" if newer else "3.5.4-1~deb13u1",
         "debian-security:trixie-security"),
    )  # fmt: skip
    packages = tuple(
        ImagePackage(name, text, "amd64", "p", source, "base", 1_400_000)
        for name, text, source in versions
    )
    finding = Finding(
        Level.FACT, "every module is built for 6.12.57+deb13-amd64", question=Question.KERNEL
    )
    warning = Finding(Level.WARNING, "a password hash is in /etc/shadow", question=Question.SECRETS)
    proof = Proof(
        f"{profile}@{version}",
        (Answer(Question.KERNEL, (finding,)), Answer(Question.SECRETS, (warning,) * newer)),
    )
    return replace(
        IMAGE,
        profile=profile,
        version=version,
        description="Nodes that compute",
        base="debian-trixie",
        kernel=ImageKernel("6.12.57+deb13-amd64", BootFile("k", 1), BootFile(version, 1)),
        root=ImageRoot(digest_of(version), version, 2_400_000_000 + 5_000_000 * newer),
        sources=sources,
        packages=packages,
        proof=proof,
    )


def make_world(top: Path, racks: int = 20, each: int = 40) -> FleetWorld:
    """Nodes that mostly are well; a few boot, failed, are silent or were never seen."""
    tree = make_tree(top / "tree")
    for profile in PROFILES:
        for version in (OLD, NEW):
            folder = tree.release(ReleaseName(profile, version))
            folder.mkdir(parents=True)
            (folder / "manifest.json").write_text(encode_image(make_image(profile, version)))
        move_channel(tree, profile, "stable", NEW if profile == "generic" else OLD)
        move_channel(tree, profile, "candidate", NEW)
    lines = ["groups:"]
    lines += [f"  rack{rack + 1}: {{profile: rx7600xt}}" for rack in range(racks)]
    lines.append("nodes:")
    for index in range(racks * each):
        profile = ", profile: generic" if index % 8 == 7 else ""
        rack = index // each + 1
        lines.append(f"  {name_of(index)}: {{macs: [{mac_of(index)}], group: rack{rack}{profile}}}")
    tree.nodes_file.write_text("\n".join(lines) + "\n")
    answers: dict[str, Observation] = {}
    world = FleetWorld(tree, top / "reports", answers)
    now = datetime.now(UTC)
    for index in range(racks * each):
        version = NEW if index % 8 == 7 else OLD
        if index % 97 == 13:
            world.report(index, "root", version, timedelta(minutes=2))
        elif index % 211 == 40:
            world.report(index, "failed", version, timedelta(minutes=11))
        elif index % 151 == 77:
            world.report(index, "switch-root", version, timedelta(hours=5))
        elif index % 307 != 200:
            booted = OLD if index % 40 == 15 else version
            verdict = {50: "missing device", 133: "degraded"}.get(index % 400, "ok")
            ago = timedelta(days=1, minutes=index)
            world.report(index, "switch-root", booted, ago, verdict)
            answers[name_of(index)] = Observation("ssh", now, BANNER)
    return world


def make_site(
    world: FleetWorld, broker: Broker | None = None, act_client: ActClient | None = None
) -> WebSite:
    """What the server has, without a server; nodes answered when the world was made."""
    maker = SnapshotMaker(world.tree, world.reports, shipped_cards())
    maker.answers, maker.probed = world.answers, datetime.now(UTC)
    watcher = Watcher(maker, broker or Broker(), ask_every=0)
    return WebSite(world.tree, world.reports, watcher, act_client)


@contextmanager
def serving(site: WebSite) -> Iterator[str]:
    """A real server on a free port, in a thread; its address."""
    with running(site) as (address, _):
        yield address


@contextmanager
def running(
    site: WebSite, *, stalled: int = STALLED_MS
) -> Iterator[tuple[str, asyncio.AbstractEventLoop]]:
    """The same, with the loop in which everything of it happens."""
    sock = open_socket("127.0.0.1", 0, stalled=stalled)
    server = uvicorn.Server(make_config(make_app(site, ("127.0.0.1",))))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(server.serve([sock]),), daemon=True
    )
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", loop
    finally:
        loop.call_soon_threadsafe(site.watcher.broker.close)
        server.should_exit = True
        thread.join()
        loop.close()
        sock.close()
