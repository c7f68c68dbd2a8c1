# SPDX-License-Identifier: Apache-2.0
"""What checks may know of an image crosses to the process that runs them."""

from __future__ import annotations

import json
from dataclasses import replace

from imagebuilder.checks.facts import Facts, NodeFacts
from imagebuilder.decode import decode_box, encode_box
from tests.images import IMAGE

NODE = NodeFacts("n", "10.0.0.2", "id", "ssh-ed25519 A", "uefi", "nfs", "10.0.0.1", "s:/r", 3.5)


def test_facts_survive_json() -> None:
    facts = Facts(IMAGE, release="/tree/roots/p/v")
    ports = replace(IMAGE, listens=("22/tcp",))
    for made in (facts, replace(facts, image=ports), replace(facts, node=NODE)):
        text = json.dumps(encode_box(made, nulls=False))
        assert decode_box(Facts, json.loads(text), "facts") == made
