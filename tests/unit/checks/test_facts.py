# SPDX-License-Identifier: Apache-2.0
"""What checks may know of an image."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from imagebuilder.checks.facts import Account, Device, NodeFacts, facts_from_json, facts_of

MANIFEST: dict[str, Any] = {
    "profile": "p",
    "version": "v",
    "listens": ["22/tcp"],
    "overlays": ["ssh"],
    "hardware": [{"pci": "1002:7480", "name": "Radeon", "target": "gfx1102"}],
    "boot": {"root": "nfs", "cmdline": ["quiet"]},
    "kernel": {"release": "6.1", "vmlinuz": {"sha256": "a"}, "initrd": {"sha256": "b"}},
    "layers": [
        {"title": "base", "inputs": {"step": "x"}},
        {
            "title": "configure ssh",
            "inputs": {
                "groups": {"video": [None, True], "render": [None, True]},
                "users": {"me": [1000, "/home/me", "/bin/sh", ["render"], False, ""]},
                "units": {"enable": ["a.service", "b.service"], "disable": [], "mask": ["c.timer"]},
            },
        },
        {
            "title": "configure other",
            "inputs": {"units": {"enable": [], "disable": [], "mask": ["b.service"]}},
        },
    ],
}
NODE = NodeFacts("n", "10.0.0.2", "id", "ssh-ed25519 A", "uefi", "nfs", "10.0.0.1", "s:/r", 3.5)


def test_facts_are_those_of_the_manifest() -> None:
    facts = facts_of(MANIFEST, release="/tree/roots/p/v")
    assert facts.kernel == "6.1"
    assert facts.listens == ("22/tcp",)
    assert facts.groups == ("render", "video")
    assert facts.users == (Account("me", 1000, ("render",)),)
    assert facts.units == {"a.service": "enable", "b.service": "mask", "c.timer": "mask"}
    assert facts.hardware == (Device("1002:7480", "Radeon", "gfx1102"),)
    assert (facts.vmlinuz_sha256, facts.initrd_sha256) == ("a", "b")
    assert (facts.release, facts.vmlinuz, facts.node) == ("/tree/roots/p/v", "", None)


def test_a_manifest_from_before_ports_were_declared_has_none() -> None:
    older = {key: value for key, value in MANIFEST.items() if key != "listens"}
    assert facts_of(older).listens is None


def test_facts_survive_json() -> None:
    facts = facts_of(MANIFEST)
    for made in (facts, replace(facts, listens=None), replace(facts, node=NODE)):
        assert facts_from_json(json.loads(json.dumps(made.as_json()))) == made
