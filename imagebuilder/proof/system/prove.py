# SPDX-License-Identifier: Apache-2.0
"""The question `system`: the node starts what it should, and is reachable and usable."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters.prove import prove_clusters
from imagebuilder.proof.reading.scripts import unit_commands
from imagebuilder.proof.reading.systemd import Startup, read_startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.files.authorities import prove_anchors, prove_served
from imagebuilder.proof.system.files.mounts import prove_extensions
from imagebuilder.proof.system.files.named import prove_named_files
from imagebuilder.proof.system.files.needed import prove_files, prove_late_settings
from imagebuilder.proof.system.files.slips import prove_characters, prove_udev_rules
from imagebuilder.proof.system.files.unread import prove_defaults, prove_documents, prove_read
from imagebuilder.proof.system.login.access_list import prove_access_list
from imagebuilder.proof.system.login.accounts import prove_accounts, prove_unit_accounts
from imagebuilder.proof.system.login.bans import prove_bans
from imagebuilder.proof.system.login.limits import (
    prove_open_files,
    prove_session_limits,
    prove_shared_memory,
)
from imagebuilder.proof.system.login.sudo_terminal import prove_terminal
from imagebuilder.proof.system.network.dns import prove_stub, prove_tls
from imagebuilder.proof.system.network.families import prove_families
from imagebuilder.proof.system.network.firewall import (
    prove_client_ports,
    prove_dropped_ports,
    prove_firewall,
)
from imagebuilder.proof.system.network.nic import prove_ends, prove_netdevs, prove_network
from imagebuilder.proof.system.programs.commands import (
    prove_card_tools,
    prove_readings,
    prove_upgrades,
)
from imagebuilder.proof.system.programs.daemons import (
    prove_rotation,
    prove_time_sources,
    prove_tuning,
)
from imagebuilder.proof.system.programs.dry_runs import prove_dry_runs
from imagebuilder.proof.system.programs.extras import prove_docstrings, prove_extras
from imagebuilder.proof.system.programs.helpers import prove_helpers
from imagebuilder.proof.system.programs.local_requests import prove_requests
from imagebuilder.proof.system.programs.openssl import prove_openssl
from imagebuilder.proof.system.programs.options import prove_options
from imagebuilder.proof.system.programs.places import prove_places, prove_tools
from imagebuilder.proof.system.programs.scripts import prove_scripts
from imagebuilder.proof.system.programs.variables import prove_variables
from imagebuilder.proof.system.units.apart import prove_fences, prove_private_tmp
from imagebuilder.proof.system.units.ignored import (
    prove_keys,
    prove_namesakes,
    prove_removed,
    prove_sections,
)
from imagebuilder.proof.system.units.manager import (
    prove_journal,
    prove_manager,
    prove_processors,
    prove_sleep,
)
from imagebuilder.proof.system.units.reach import prove_paths, prove_reach
from imagebuilder.proof.system.units.start import prove_listeners, prove_ports, prove_start


def prove_system(subject: Subject) -> Iterator[Finding]:
    """Every finding about the system; none for a root without systemd."""
    startup = read_startup(subject)
    if startup is None:
        return
    if not startup.units:
        what = "the image's systemd-analyze does not report what starts: units were not checked"
        hint = "run `systemd-analyze verify default.target` in the image to see why"
        yield SAY.warning(what, Evidence("/usr/bin/systemd-analyze"), hint=hint)
        return
    yield from of_units(subject, startup)
    yield from of_programs(subject, startup)
    yield from of_files(subject, startup)
    yield from of_network(subject, startup)
    yield from of_login(subject, startup)
    yield from prove_clusters(subject, startup)


def of_units(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """What starts at boot, and with which settings."""
    yield from prove_start(subject, startup)
    yield from prove_ports(subject, startup)
    yield from prove_listeners(subject, startup)
    yield from prove_paths(subject, startup)
    yield from prove_reach(subject, startup)
    yield from prove_private_tmp(subject, startup)
    yield from prove_late_settings(subject, startup)
    yield from prove_fences(subject, startup)
    yield from prove_namesakes(subject, startup)
    yield from prove_sections(subject)
    yield from prove_removed(subject, startup)
    yield from prove_keys(subject)
    yield from prove_manager(subject, startup)
    yield from prove_journal(subject)
    yield from prove_processors(subject, startup)
    yield from prove_sleep(subject, startup)


def of_programs(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """What a site's services and scripts start, and what programs say of their settings."""
    yield from prove_helpers(subject, startup)
    yield from prove_scripts(subject, startup)
    yield from prove_dry_runs(subject)
    commands = tuple(unit_commands(subject, startup))
    yield from prove_requests(subject, startup, commands)
    yield from prove_readings(subject, startup, commands)
    yield from prove_card_tools(subject, startup, commands)
    yield from prove_upgrades(subject, startup)
    yield from prove_options(subject, startup)
    yield from prove_variables(subject, startup)
    yield from prove_extras(subject, startup)
    yield from prove_places(subject, startup)
    yield from prove_tools(subject, startup)
    yield from prove_docstrings(subject, startup)
    yield from prove_time_sources(subject, startup)
    yield from prove_rotation(subject, startup)
    yield from prove_tuning(subject, startup)
    yield from prove_openssl(subject)


def of_files(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Files that nobody reads, that somebody needs, or whose text is not what it looks like."""
    yield from prove_read(subject, startup)
    yield from prove_characters(subject)
    yield from prove_documents(subject)
    yield from prove_defaults(subject)
    yield from prove_udev_rules(subject)
    yield from prove_named_files(subject)
    yield from prove_files(subject)
    yield from prove_extensions(subject)
    yield from prove_anchors(subject, startup)
    yield from prove_served(subject)


def of_network(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """NICs, names and the firewall."""
    yield from prove_network(subject, startup)
    yield from prove_netdevs(subject.root, startup)
    yield from prove_ends(subject.root, startup)
    yield from prove_tls(subject, startup)
    yield from prove_stub(subject, startup)
    yield from prove_firewall(subject, startup)
    yield from prove_dropped_ports(subject, startup)
    yield from prove_client_ports(subject)
    yield from prove_families(subject, startup)


def of_login(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Accounts, and what happens when people log in."""
    yield from prove_accounts(subject)
    yield from prove_access_list(subject)
    yield from prove_unit_accounts(subject, startup)
    yield from prove_session_limits(subject)
    yield from prove_open_files(subject)
    yield from prove_bans(subject, startup)
    yield from prove_terminal(subject, startup)
    yield from prove_shared_memory(subject, startup)
