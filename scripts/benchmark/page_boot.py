# SPDX-License-Identifier: Apache-2.0
"""The part of the page with the boot tables.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from imagebuilder.rootkind import KINDS
from scripts.benchmark.figures import Figure, Section

# The parts of a boot's figure, as boot.py measures and this page shows them.
STAGES = ("firmware and iPXE", "kernel and initrd", "root mounted", "switch-root", "ssh")
TO_NODES, FROM_NODES, BY_HTTP = "to nodes, MB", "from nodes, MB", "by HTTP, MB"
NODE_MEMORY = "memory used on a node, MB"
DAEMONS = ("nginx", "ganesha", "dnsmasq", "rpcbind", "imagebuilder")


def cpu_of(daemon: str) -> str:
    """The name of the part with a daemon's processor time."""
    return f"{daemon}, processor s"


def memory_of(daemon: str) -> str:
    """The name of the part with a daemon's peak memory."""
    return f"{daemon}, peak MB"


ORIENTATION = """\
All nodes are switched on at once and boot the same published release: DHCP, iPXE, kernel and
initrd over HTTP, then the root, of each [kind](netboot-root.md#kinds-of-root). A stage is the time
from power-on until the **last** node has passed it:

* `firmware and iPXE`: iPXE has the entry script;
* `kernel and initrd`: the kernel prints its first line;
* `root mounted`, `switch-root`: the initrd has reported it;
* `ssh`: the ssh server answers.

Bytes are counted on the machines' network interfaces, with all headers; `by HTTP` is what nginx
sent. The load of daemons does not include the kernel's own (bridge, TCP).""".splitlines()


def render_boot(section: Section) -> list[str]:
    """Times by stage, then bytes and load."""
    # As they were measured may be any order: a cell may be measured again.
    figures = sorted((f for f in section.figures if f.values), key=place_of)
    lines = [*ORIENTATION, "", f"Acceleration: {section.remarks.get('acceleration', 'unknown')}."]
    lines += ["", "Seconds from power-on until the last node has passed a stage; medians:", ""]
    lines += render_table(figures, STAGES, 1)
    lines += ["", "Bytes over the network, and memory used on a node when ssh answers, in MB:", ""]
    lines += render_table(figures, (TO_NODES, BY_HTTP, FROM_NODES, NODE_MEMORY), 1)
    per_node = [divided(figure) for figure in figures]
    lines += ["", "MB sent to each node:", "", *render_grid(per_node, TO_NODES)]
    lines += ["", "Server load until the last ssh, in CPU seconds of all cores:", ""]
    lines += render_table(figures, [cpu_of(name) for name in DAEMONS], 2, short_daemon)
    lines += ["", "Server memory, peak of all processes of each daemon, in MB:", ""]
    lines += render_table(figures, [memory_of(name) for name in DAEMONS], 1, short_daemon)
    told = [f for f in section.figures if f.fault or f.note]
    if told:
        lines += ["", "Notes:", ""]
        for figure in told:
            said = "; ".join(" ".join(text.split()) for text in (figure.fault, figure.note) if text)
            lines.append(f"* {figure.row}, {figure.column} nodes: {said}")
    return lines


def place_of(figure: Figure) -> tuple[int, int]:
    """Where a cell stands: by nodes, then by kind of root."""
    return int(figure.column), KINDS.index(figure.row)


def short_daemon(part: str) -> str:
    """A daemon's name alone."""
    return part.partition(",")[0]


def render_table(
    figures: Sequence[Figure],
    parts: Sequence[str],
    digits: int,
    named: Callable[[str], str] = str,
) -> list[str]:
    """A line for each kind of root and number of nodes."""
    lines = [
        "| root | nodes | " + " | ".join(map(named, parts)) + " | runs |",
        "|---|---|" + "---|" * (len(parts) + 1),
    ]
    for figure in figures:
        cells = [render(figure.parts.get(part, ()), digits) for part in parts]
        runs = max((len(values) for values in figure.parts.values()), default=0)
        lines.append("| " + " | ".join((figure.row, figure.column, *cells, str(runs))) + " |")
    return lines


def render_grid(figures: Sequence[Figure], part: str) -> list[str]:
    """A line for each kind of root, a column for each number of nodes."""
    columns = list(dict.fromkeys(figure.column for figure in figures))
    lines = ["| root | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for row in dict.fromkeys(figure.row for figure in figures):
        cells = {f.column: render(f.parts.get(part, ()), 1) for f in figures if f.row == row}
        shown = [cells.get(name, "") for name in columns]
        lines.append("| " + " | ".join((row, *shown)) + " |")
    return lines


def divided(figure: Figure) -> Figure:
    """The bytes of a figure for each node."""
    many = int(figure.column)
    values = tuple(value / many for value in figure.parts.get(TO_NODES, ()))
    return Figure(figure.row, figure.column, figure.values, {TO_NODES: values})


def render(values: Sequence[float], digits: int) -> str:
    """The median, and the spread where there is one."""
    if not values:
        return ""
    shown = f"{median(values):.{digits}f}"
    if len(values) > 1:
        shown += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return shown
