# SPDX-License-Identifier: Apache-2.0
"""The tiny model is a GGUF file that says what it should, and always the same bytes."""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.process import run
from tests.unit.probes import load_program
from tests.workshop import SHIPPED_OVERLAYS

PROGRAM = SHIPPED_OVERLAYS["llama-cpp"] / "probes/model.py"
MODEL = load_program(PROGRAM)
BLOCKS, WIDTH = MODEL.BLOCKS, MODEL.WIDTH
MIB = 1 << 20
SIZES = {4: "I", 5: "i", 6: "f", 7: "?"}
STRING, ARRAY = 8, 9


@dataclass
class Reader:
    """Reads GGUF as its specification says, apart from our writer."""

    content: bytes
    at: int = 0

    def unpack(self, kind: str) -> int | float | bool:
        size = struct.calcsize("<" + kind)
        (value,) = struct.unpack_from("<" + kind, self.content, self.at)
        self.at += size
        assert isinstance(value, int | float | bool)
        return value

    def count(self, kind: str = "Q") -> int:
        return int(self.unpack(kind))

    def text(self) -> str:
        size = self.count()
        self.at += size
        return self.content[self.at - size : self.at].decode()

    def value(self, kind: int) -> object:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, many = self.count("I"), self.count()
            return [self.value(inner) for _ in range(many)]
        return self.unpack(SIZES[kind])


@dataclass(frozen=True)
class Gguf:
    """What is in the file: entries, and of each tensor its shape and its numbers."""

    entries: dict[str, object]
    shapes: dict[str, tuple[int, ...]]
    numbers: dict[str, list[float]]


def read_gguf(content: bytes) -> Gguf:
    reader = Reader(content, 4)
    assert (content[:4], reader.count("I")) == (b"GGUF", 3)
    tensors, entries = reader.count(), reader.count()
    found = {reader.text(): reader.value(reader.count("I")) for _ in range(entries)}
    places: dict[str, tuple[tuple[int, ...], int]] = {}
    for _ in range(tensors):
        name = reader.text()
        shape = tuple(reader.count() for _ in range(reader.count("I")))
        assert reader.count("I") == 0, "32-bit floats"
        places[name] = (shape, reader.count())
    start = -(-reader.at // MODEL.ALIGNMENT) * MODEL.ALIGNMENT
    shapes = {name: shape for name, (shape, _) in places.items()}
    numbers: dict[str, list[float]] = {}
    end = 0
    for name, (shape, offset) in places.items():
        assert offset % MODEL.ALIGNMENT == 0
        assert offset >= end, "tensors do not overlap"
        many = shape[0] * (shape[1] if len(shape) > 1 else 1)
        end = offset + 4 * many
        values = array("f")
        values.frombytes(content[start + offset : start + end])
        numbers[name] = values.tolist()
    assert start + end == len(content)
    return Gguf(found, shapes, numbers)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    run([sys.executable, "-I", PROGRAM, path])
    return path


@pytest.fixture(scope="module")
def gguf(model: Path) -> Gguf:
    return read_gguf(model.read_bytes())


def test_it_is_small_and_always_the_same(model: Path) -> None:
    content = model.read_bytes()
    assert MIB < len(content) < 4 * MIB
    known = "182333680d4cc8961a9532545ecd73f4fbc901590fa0c1097e47b12d0246e0aa"
    assert hashlib.sha256(content).hexdigest() == known


def test_it_is_a_llama_with_a_short_context(gguf: Gguf) -> None:
    assert gguf.entries["general.architecture"] == "llama"
    assert gguf.entries["llama.context_length"] == 512
    assert gguf.entries["llama.block_count"] == BLOCKS
    assert gguf.entries["llama.embedding_length"] == WIDTH


def test_its_vocabulary_writes_every_text(gguf: Gguf) -> None:
    tokens, kinds = gguf.entries["tokenizer.ggml.tokens"], gguf.entries["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(kinds, list)
    by_kind: dict[int, list[str]] = {}
    for token, kind in zip(tokens, kinds, strict=True):
        by_kind.setdefault(kind, []).append(token)
    assert by_kind[2] == ["<unk>"]
    assert by_kind[3] == ["<s>", "</s>"]
    assert by_kind[6] == [f"<0x{value:02X}>" for value in range(256)]
    assert by_kind[1] == ["\u2581", *map(chr, range(33, 127))]
    assert len(set(tokens)) == len(tokens) == gguf.entries["llama.vocab_size"]
    scores = gguf.entries["tokenizer.ggml.scores"]
    assert isinstance(scores, list)
    assert len(scores) == len(tokens)
    assert tokens[1] == "<s>"
    assert gguf.entries["tokenizer.ggml.bos_token_id"] == 1
    assert gguf.entries["tokenizer.ggml.eos_token_id"] == 2


def test_it_has_every_tensor_that_the_architecture_wants(gguf: Gguf) -> None:
    tokens = gguf.entries["llama.vocab_size"]
    inner = gguf.entries["llama.feed_forward_length"]
    block = {
        "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH),
        "attn_v": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,),
        "ffn_gate": (WIDTH, inner), "ffn_down": (inner, WIDTH), "ffn_up": (WIDTH, inner),
    }  # fmt: skip
    assert gguf.shapes == {
        "token_embd.weight": (WIDTH, tokens),
        "output_norm.weight": (WIDTH,),
        "output.weight": (WIDTH, tokens),
        **{f"blk.{n}.{name}.weight": shape for n in range(BLOCKS) for name, shape in block.items()},
    }


def test_it_says_letters_only(gguf: Gguf) -> None:
    tokens = gguf.entries["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    output = gguf.numbers["output.weight"]
    rows = {token: output[n * WIDTH : (n + 1) * WIDTH] for n, token in enumerate(tokens)}
    spoken = {token for token, row in rows.items() if any(row)}
    assert spoken == {token for token in tokens if len(token) == 1 and token.isalpha()}


def test_its_weights_are_not_all_alike(gguf: Gguf) -> None:
    for name, numbers in gguf.numbers.items():
        if "norm" in name:
            assert set(numbers) == {1.0}
        else:
            assert len(set(numbers)) > 1000, name
            assert max(map(abs, numbers)) < 0.101
    first, second = (gguf.numbers[f"blk.{number}.attn_q.weight"] for number in range(2))
    assert first != second
