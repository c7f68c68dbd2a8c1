# SPDX-License-Identifier: Apache-2.0
"""Filter facts so that they are those of the image and not of the builder.

Ansible's `setup` module reads the running kernel, /proc and /sys, which are the builder's even in a
sandbox.  Only facts that come from the root's own files pass; some get a fixed value that is right
for an image; all others are removed, so that a playbook that needs them fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from imagebuilder.digest import Json

PREFIX = "ansible_"
# Facts of other installed programs that `setup` adds: all are about the running machine.
FOREIGN = ("facter_", "ohai_")
KEPT = frozenset((
    "architecture", "machine", "system", "userspace_architecture", "userspace_bits",
    "distribution", "distribution_file_parsed", "distribution_file_path",
    "distribution_file_search_string", "distribution_file_variety", "distribution_major_version",
    "distribution_minor_version", "distribution_release", "distribution_version",
    "os_family", "lsb", "pkg_mgr", "python", "python_version", "env", "local",
    "user_dir", "user_gecos", "user_gid", "user_id", "user_shell", "user_uid",
    "effective_group_id", "effective_user_id", "real_group_id", "real_user_id",
))  # fmt: skip
# The values of `setup` on real hardware without a network and disks.
PINNED: Mapping[str, Json] = {
    "all_ipv4_addresses": [], "all_ipv6_addresses": [], "default_ipv4": {}, "default_ipv6": {},
    "interfaces": ["lo"], "locally_reachable_ips": {"ipv4": [], "ipv6": []},
    "devices": {}, "device_links": {"ids": {}, "labels": {}, "masters": {}, "uuids": {}},
    "mounts": [],
    "virtualization_type": "NA", "virtualization_role": "NA",
    "virtualization_tech_guest": [], "virtualization_tech_host": [],
    "is_chroot": True, "fips": False,
    "selinux": {"status": "disabled"}, "selinux_python_present": False,
    "service_mgr": "systemd", "domain": "",
}  # fmt: skip


# Prefixes of removed facts and of their parts, only for a hint.
OF_MACHINES = re.compile(
    r"(ansible_)?(processor|mem|swap|product_|bios_|board_|chassis_|system_vendor|form_factor|"
    r"uptime|loadavg|cmdline|proc_cmdline|dns|apparmor|kernel_version|ssh_host_key|machine_id|"
    r"eth\d|en[ops]\d|wl[ops]\d|ib\d|bond|br|address|interface|gateway|lvm|iscsi|nvme|fibre)"
)


def pins_of(host: str, kernel: str, epoch: int) -> Mapping[str, Json]:
    """The facts with one value: `host` is the image's name, `kernel` its release ("" for none)."""
    release: Mapping[str, Json] = {"kernel": kernel} if kernel else {}
    named: Mapping[str, Json] = {"hostname": host, "nodename": host, "fqdn": host}
    return {**PINNED, **named, **release, "date_time": date_time(epoch)}


def date_time(epoch: int) -> Mapping[str, Json]:
    """The fact `date_time` at `epoch` (seconds), in the words of `setup`."""
    at = datetime.fromtimestamp(epoch, UTC)
    forms = {
        "year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S",
        "weekday": "%A", "weekday_number": "%w", "weeknumber": "%W", "date": "%Y-%m-%d",
        "time": "%H:%M:%S", "iso8601": "%Y-%m-%dT%H:%M:%SZ",
        "iso8601_micro": "%Y-%m-%dT%H:%M:%S.%fZ", "iso8601_basic": "%Y%m%dT%H%M%S%f",
        "iso8601_basic_short": "%Y%m%dT%H%M%S",
    }  # fmt: skip
    zone = {"tz": "UTC", "tz_dst": "UTC", "tz_offset": "+0000"}
    seconds = {"epoch": str(epoch), "epoch_int": str(epoch)}
    return {**{name: at.strftime(form) for name, form in forms.items()}, **zone, **seconds}


def image_facts(found: Mapping[str, Json], pins: Mapping[str, Json]) -> dict[str, Json]:
    """The remaining facts of a module; sorted, because the order of `setup` varies."""
    return dict(sorted(filtered(found, pins)))


def filtered(found: Mapping[str, Json], pins: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """The facts that stay; those of other modules (`packages`, `services`) are unchanged."""
    for name, value in found.items():
        fact = name.removeprefix(PREFIX)
        if fact == name:
            if not name.startswith(FOREIGN):
                yield name, value
        elif fact in pins:
            yield name, pins[fact]
        elif fact in KEPT:
            yield name, value
