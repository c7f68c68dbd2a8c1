# SPDX-License-Identifier: Apache-2.0
"""Check whether this host is fit: findings with fixes, without changing anything."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from imagebuilder.doctor import host
from imagebuilder.doctor.boot import examine_boot
from imagebuilder.doctor.finding import HostFinding, Severity
from imagebuilder.doctor.inputs import examine_inputs, examine_site
from imagebuilder.doctor.serve import examine_serve
from imagebuilder.environment import base_environment
from imagebuilder.families.registry import families
from imagebuilder.settings import Settings, find_home
from imagebuilder.ui import table

__all__ = ["HostFinding", "Severity", "examine", "examine_boot", "examine_serve", "render_findings"]


def examine(settings: Settings, env: Mapping[str, str]) -> tuple[HostFinding, ...]:
    """Everything that can be checked before the first step; waits at most for the mirrors (5 s)."""
    is_root = os.geteuid() == 0
    path = base_environment()["PATH"]
    needs = [need for need in host.load_needs() if need.group not in host.SERVE_GROUPS]
    tools = [engine.tool for family in families() for engine in family.engines.values()]
    needed = {need.tool for need in needs}
    return (
        host.examine_python(sys.version_info[:3]),
        *(host.examine_need(need, path) for need in needs),
        host.examine_ansible(),
        *(host.examine_engine(tool) for tool in tools if tool.program not in needed),
        host.examine_root(path, is_root=is_root),
        *host.examine_kernel(path, is_root=is_root),
        *host.examine_state(settings.state, is_root=is_root),
        host.examine_sandbox(settings.state, path, is_root=is_root),
        host.examine_memory(Path("/proc/meminfo").read_text()),
        host.examine_kvm(Path("/dev/kvm")),
        *examine_inputs(settings, env),
        examine_site(settings.site, find_home(env)),
    )


def render_findings(findings: Sequence[HostFinding]) -> str:
    """The findings for people, the worst last, with fixes."""
    order = tuple(Severity)
    rows: list[tuple[str, str, str]] = []
    for finding in sorted(findings, key=lambda finding: order.index(finding.level)):
        rows.append((str(finding.level), finding.subject, finding.what))
        if finding.fix:
            rows.append(("", "", f"fix: {finding.fix}"))
    return table(rows)
