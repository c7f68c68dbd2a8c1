# SPDX-License-Identifier: Apache-2.0
"""The tiny model of the vllm overlay: its files agree, and are the same each time."""

from __future__ import annotations

import json
import struct
import sys
from math import prod
from pathlib import Path

from imagebuilder.process import run

PROGRAM = Path(__file__).parents[2] / "overlays/vllm/probes/model.py"


def make(folder: Path) -> Path:
    run([sys.executable, "-I", PROGRAM, folder])
    return folder


def test_weights_fill_their_file_and_fit_the_configuration(tmp_path: Path) -> None:
    model = make(tmp_path / "model")
    data = (model / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    end = 0
    for tensor in header.values():
        assert tensor["data_offsets"] == [end, end + 4 * prod(tensor["shape"])]
        end = tensor["data_offsets"][1]
    assert len(data) == 8 + length + end
    config = json.loads((model / "config.json").read_text())
    words = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    assert header["lm_head.weight"]["shape"] == [len(words), config["hidden_size"]]
    assert len(words) == config["vocab_size"] == 2 + 256
    assert sorted(words.values()) == list(range(len(words)))
    layers = {name.split(".")[2] for name in header if ".layers." in name}
    assert len(layers) == config["num_hidden_layers"]


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()
