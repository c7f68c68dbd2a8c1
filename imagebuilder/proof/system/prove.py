# SPDX-License-Identifier: Apache-2.0
"""The question `system`: the node starts what it should, and is reachable and usable."""

from __future__ import annotations

from collections.abc import Callable

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.clusters import engines, kubernetes, peers, ranks, slurm, state
from imagebuilder.proof.reading.systemd import SYSTEMD
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.files import authorities, mounts, needed, unread
from imagebuilder.proof.system.login import accounts, limits, sshd
from imagebuilder.proof.system.network import firewall, nic
from imagebuilder.proof.system.programs import (
    commands,
    dry_runs,
    extras,
    helpers,
    local_requests,
    options,
    scripts,
)
from imagebuilder.proof.system.units import ignored, manager, reach, start

Rule = Callable[[Subject], Findings]
# The rules, in the order in which their findings are printed.
OF_UNITS: tuple[Rule, ...] = (
    start.prove_start, start.prove_ports, start.prove_listeners, reach.prove_paths,
    reach.prove_reach, reach.prove_private_tmp, needed.prove_late_settings, reach.prove_fences,
    ignored.prove_namesakes, ignored.prove_sections, ignored.prove_removed, ignored.prove_keys,
    manager.prove_manager, manager.prove_journal, manager.prove_processors, manager.prove_sleep,
)  # fmt: skip
OF_PROGRAMS: tuple[Rule, ...] = (
    helpers.prove_helpers, scripts.prove_scripts, dry_runs.prove_dry_runs,
    local_requests.prove_requests, commands.prove_readings, commands.prove_card_tools,
    commands.prove_upgrades, options.prove_options, options.prove_variables,
    extras.prove_extras, extras.prove_places, extras.prove_tools, extras.prove_docstrings,
    helpers.prove_time_sources, helpers.prove_rotation, helpers.prove_tuning,
    helpers.prove_openssl,
)  # fmt: skip
OF_FILES: tuple[Rule, ...] = (
    unread.prove_read, needed.prove_characters, unread.prove_documents, unread.prove_defaults,
    needed.prove_udev_rules, unread.prove_named_files, needed.prove_files, mounts.prove_extensions,
    authorities.prove_anchors, authorities.prove_served,
)  # fmt: skip
OF_NETWORK: tuple[Rule, ...] = (
    nic.prove_network, nic.prove_netdevs, nic.prove_ends, nic.prove_tls, nic.prove_stub,
    firewall.prove_firewall, firewall.prove_dropped_ports, firewall.prove_client_ports,
    firewall.prove_families,
)  # fmt: skip
OF_LOGIN: tuple[Rule, ...] = (
    accounts.prove_accounts, accounts.prove_access_list, accounts.prove_unit_accounts,
    limits.prove_session_limits, limits.prove_open_files, sshd.prove_bans,
    limits.prove_terminal, limits.prove_shared_memory,
)  # fmt: skip
OF_CLUSTERS: tuple[Rule, ...] = (
    engines.prove_storage, engines.prove_container_devices, kubernetes.prove_kubernetes,
    kubernetes.prove_forwarding, state.prove_state, state.prove_disks, slurm.prove_slurm,
    slurm.prove_gres, peers.prove_shares, engines.prove_bridges, ranks.prove_ranks,
    ranks.prove_mpi, peers.prove_detached, peers.prove_peers, state.prove_growth,
)  # fmt: skip
RULES = (*OF_UNITS, *OF_PROGRAMS, *OF_FILES, *OF_NETWORK, *OF_LOGIN, *OF_CLUSTERS)


def prove_system(subject: Subject) -> Findings:
    """Every finding about the system; none for a root without systemd."""
    if not subject.root.is_file(SYSTEMD):
        return
    if not subject.startup.units:
        what = "the image's systemd-analyze does not report what starts: units were not checked"
        hint = "run `systemd-analyze verify default.target` in the image to see why"
        yield warning(what, Evidence("/usr/bin/systemd-analyze"), hint=hint)
        return
    for rule in RULES:
        yield from rule(subject)
