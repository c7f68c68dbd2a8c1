# SPDX-License-Identifier: Apache-2.0
"""Facts of the image: what of a `setup` on the builder may reach a playbook."""

from __future__ import annotations

import json
from collections.abc import Mapping

from imagebuilder.digest import Json
from imagebuilder.playbook.facts import OF_MACHINES, image_facts, pins_of

EPOCH = 1_700_000_000
# Made up, in the form of ansible-core 2.19's own, each value one that only this builder has.
BUILDER: Mapping[str, Json] = {
    "ansible_kernel": "5.15.0-builder",
    "ansible_kernel_version": "#1 builder",
    "ansible_hostname": "builder",
    "ansible_fqdn": "builder.example.net",
    "ansible_nodename": "builder",
    "ansible_domain": "example.net",
    "ansible_all_ipv4_addresses": ["192.0.2.77"],
    "ansible_default_ipv4": {"address": "192.0.2.77"},
    "ansible_eth0": {"ipv4": {"address": "192.0.2.77"}},
    "ansible_interfaces": ["lo", "eth0"],
    "ansible_dns": {"nameservers": ["192.0.2.53"]},
    "ansible_mounts": [{"mount": "/builder"}],
    "ansible_devices": {"nvme0n1": {"model": "builder"}},
    "ansible_memtotal_mb": 65536,
    "ansible_processor_vcpus": 48,
    "ansible_product_name": "builder",
    "ansible_virtualization_type": "kvm",
    "ansible_cmdline": {"root": "builder"},
    "ansible_date_time": {"year": "2099"},
    "ansible_ssh_host_key_ed25519_public": "builder",
    "ansible_machine_id": "builder",
    "ansible_a_fact_of_next_year": "builder",
    "facter_kernel": "builder",
    "ohai_kernel": "builder",
}
IMAGE: Mapping[str, Json] = {
    "ansible_distribution": "Debian",
    "ansible_distribution_release": "forky",
    "ansible_os_family": "Debian",
    "ansible_pkg_mgr": "apt",
    "ansible_python_version": "3.14.8",
    "ansible_local": {"site": {"rack": "7"}},
    "ansible_architecture": "x86_64",
    "packages": {"bash": [{"version": "5.3"}]},
    "gather_subset": ["all"],
}


def test_nothing_of_the_builder_is_left() -> None:
    facts = image_facts(BUILDER, pins_of("rx7600xt", "7.2.12+deb14-amd64", EPOCH))
    text = json.dumps(facts)
    for word in ("builder", "192.0.2", "nvme", "65536", "48", "example.net", "2099", "kvm"):
        assert word not in text
    assert facts["ansible_kernel"] == "7.2.12+deb14-amd64"
    assert facts["ansible_hostname"] == facts["ansible_fqdn"] == "rx7600xt"
    assert facts["ansible_default_ipv4"] == {}
    assert "ansible_memtotal_mb" not in facts


def test_what_the_root_says_stays() -> None:
    assert image_facts(IMAGE, pins_of("p", "", EPOCH)) == IMAGE


def test_facts_have_one_order() -> None:
    turned = {name: IMAGE[name] for name in reversed(list(IMAGE))}
    pins = pins_of("p", "", EPOCH)
    assert list(image_facts(IMAGE, pins)) == list(image_facts(turned, pins))


def test_a_fact_that_was_not_asked_for_is_not_added() -> None:
    found = {"ansible_service_mgr": "python3"}
    assert image_facts(found, pins_of("p", "7.2", EPOCH)) == {"ansible_service_mgr": "systemd"}


def test_a_root_without_a_kernel_has_no_kernel_fact() -> None:
    assert image_facts({"ansible_kernel": "builder"}, pins_of("p", "", EPOCH)) == {}


def test_time_is_the_layers() -> None:
    found = image_facts({"ansible_date_time": {}}, pins_of("p", "", EPOCH))["ansible_date_time"]
    assert isinstance(found, dict)
    assert (found["iso8601"], found["epoch"]) == ("2023-11-14T22:13:20Z", "1700000000")


def test_the_hint_knows_what_is_a_machines() -> None:
    for name in ("ansible_memtotal_mb", "processor_vcpus", "ansible_eth0", "address"):
        assert OF_MACHINES.match(name)
    for name in ("ansible_distribution", "services", "my_own_var"):
        assert not OF_MACHINES.match(name)
