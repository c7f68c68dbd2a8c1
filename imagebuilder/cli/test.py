# SPDX-License-Identifier: Apache-2.0
"""The boot test of a release."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from imagebuilder.cli.context import Call, exit_unless, option
from imagebuilder.cli.names import AsJson, ReleaseName, TreeOption
from imagebuilder.cli.report import HtmlOption, JunitOption, show_report, write_files
from imagebuilder.tree import DEFAULT_TREE

if TYPE_CHECKING:
    from imagebuilder.boot.machine import Machine
    from imagebuilder.boot.server import BootServer
    from imagebuilder.ui import Ui


RootOption = Annotated[
    str,
    option(
        "Kind of root: nfs, nfs-squashfs, http, http-erofs, both (nfs and http), all. "
        "[default: the one that nodes use]"
    ),
]
SelectOption = Annotated[
    str,
    option(
        "Run only checks that match (pytest -k); does not count for promotion.",
        "-k",
        metavar="EXPR",
    ),
]
SecondsOption = Annotated[
    float,
    option(
        "Limit from power-on to ssh, in seconds. [default: 200 with KVM, 600 emulated]",
        min=0,
        show_default=False,
    ),
]
MemoryOption = Annotated[
    int,
    option("Memory of a machine. [default: as needed]", min=0, metavar="MIB", show_default=False),
]
ProcessorsOption = Annotated[
    int,
    option("Processors of a machine. [default: 2 with KVM, 1 emulated]", min=0, show_default=False),
]
ProcessorOption = Annotated[
    str,
    option(
        "Processor to emulate without KVM: x86-64-v2, x86-64-v3. [default: as needed]",
        metavar="LEVEL",
    ),
]


def test(
    context: Call,
    release: ReleaseName,
    firmware: Annotated[str, option("Firmware of the machines: uefi, bios, both.")] = ("uefi"),
    root: RootOption = "",
    nodes: Annotated[int, option("Number of machines; two compute together.", min=1, max=8)] = 1,
    select: SelectOption = "",
    keep: Annotated[bool, option("Keep the machines running until Ctrl-C.", "--keep")] = False,
    timeout: SecondsOption = 0.0,
    memory: MemoryOption = 0,
    cpus: ProcessorsOption = 0,
    cpu: ProcessorOption = "",
    html: HtmlOption = None,
    junit: JunitOption = None,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Boot a release in QEMU the way nodes boot, and report PASS or the stage that failed.

    Tests firmware, DHCP, iPXE, kernel, initrd, network root, ssh, checks, an answer of the engine
    and a reboot. The machine runs in an isolated network and does not touch this host's network.

    Example: imagebuilder test rx7600xt
    """
    from imagebuilder.boot.gate import GateOptions, try_release
    from imagebuilder.boot.shape import RequestedShape
    from imagebuilder.publish.channel.standing import release_standing
    from imagebuilder.publish.find import open_tree
    from imagebuilder.tree import ReleaseName as PublishedName

    options = GateOptions(firmware, root, nodes, select, timeout, RequestedShape(memory, cpus, cpu))

    def wait(boot_server: BootServer, machines: Sequence[Machine]) -> None:
        if keep:
            leave_running(boot_server, machines, context.obj.ui)

    place = open_tree(tree)
    overlays = context.obj.settings.find_overlays()
    done = try_release(place, release, overlays, options, context.obj.ui, afterwards=wait)
    release_standing(place, PublishedName(done.profile, done.version))  # cache it for `releases`
    write_files(place, done, html, junit)
    show_report(place, done, json=json)
    exit_unless(done.passed)


def leave_running(boot_server: BootServer, machines: Sequence[Machine], ui: Ui) -> None:
    """Print how to reach the machines, and wait for Ctrl-C."""
    for guest, machine in zip(boot_server.guests, machines, strict=True):
        ui.note(f"{machine.name} is still running")
        ui.note(f"  ssh      {boot_server.ssh_words(guest)}")
        ui.note(f"  console  sudo nc -U {machine.serial}")
        ui.note(f"  lines    {machine.console.log}")
    ui.note("press Ctrl-C to end the test")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        ui.note("ending the machines")
