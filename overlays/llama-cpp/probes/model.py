# SPDX-License-Identifier: Apache-2.0
"""A tiny language model that every llama.cpp loads: random weights, a vocabulary for any text.

usage: python3 model.py FILE

It talks nonsense in letters: what its vocabulary has for reading only (bytes, signs, control
tokens) has no weight in its output, so a request for N tokens is answered with N of them.

The file is GGUF version 3, little-endian (ggml's docs/gguf.md):

    magic, version, number of tensors, number of entries
    entries    key, type, value
    tensors    name, dimensions (the fastest first), type, offset in the data
    data       from a multiple of ALIGNMENT on, as every tensor in it

The architecture is `llama` with 32-bit floats; names and shapes are those of llama.cpp's
convert_hf_to_gguf.py.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCKS = 2
WIDTH = 128  # of the embedding
HEADS = 4
INNER = 384  # of a feed-forward block
CONTEXT = 512
SPREAD = 0.1  # of weights, to both sides of zero
SEED = b"imagebuilder"

ALIGNMENT = 32
VERSION = 3
F32 = 0  # ggml_type
# gguf_type, and how struct packs it.
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
PACKED = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}
# llama_token_type
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
SPACE = "\u2581"  # how SentencePiece writes a space
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

Value = int | float | str


@dataclass(frozen=True)
class Token:
    """A word of the vocabulary; of several ways to write a text the highest scores win."""

    text: str
    kind: int
    score: float = 0.0


@dataclass(frozen=True)
class Tensor:
    """A matrix or vector of the model; `data` is what the file holds."""

    name: str
    shape: tuple[int, ...]
    data: bytes


def make_model(path: Path) -> None:
    """Write the model to `path`: always the same bytes, about 2 MB."""
    tokens = vocabulary()
    tensors = (*embedding(tokens), *(t for number in range(BLOCKS) for t in block(number)))
    entries = metadata(tokens)
    header = b"GGUF" + struct.pack("<IQQ", VERSION, len(tensors), len(entries))
    head = header + b"".join(entries) + render_infos(tensors)
    path.write_bytes(padded(head) + b"".join(padded(tensor.data) for tensor in tensors))


def vocabulary() -> tuple[Token, ...]:
    """Control tokens, a token for every byte, and one for every printable ASCII character."""
    control = (Token("<unk>", UNKNOWN), Token("<s>", CONTROL), Token("</s>", CONTROL))
    every_byte = tuple(Token(f"<0x{value:02X}>", BYTE) for value in range(256))
    letters = (SPACE, *map(chr, range(ord("!"), ord("~") + 1)))
    return (*control, *every_byte, *(Token(letter, NORMAL, -1.0) for letter in letters))


def metadata(tokens: Sequence[Token]) -> tuple[bytes, ...]:
    """The entries that llama.cpp asks for."""
    head = WIDTH // HEADS
    return (
        entry("general.architecture", STRING, "llama"),
        entry("general.name", STRING, "imagebuilder boot test"),
        entry("general.alignment", UINT32, ALIGNMENT),
        entry("llama.vocab_size", UINT32, len(tokens)),
        entry("llama.context_length", UINT32, CONTEXT),
        entry("llama.embedding_length", UINT32, WIDTH),
        entry("llama.block_count", UINT32, BLOCKS),
        entry("llama.feed_forward_length", UINT32, INNER),
        entry("llama.attention.head_count", UINT32, HEADS),
        entry("llama.attention.head_count_kv", UINT32, HEADS),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        entry("llama.rope.dimension_count", UINT32, head),
        entry("tokenizer.ggml.model", STRING, "llama"),
        entries("tokenizer.ggml.tokens", STRING, [token.text for token in tokens]),
        entries("tokenizer.ggml.scores", FLOAT32, [token.score for token in tokens]),
        entries("tokenizer.ggml.token_type", INT32, [token.kind for token in tokens]),
        entry("tokenizer.ggml.unknown_token_id", UINT32, 0),
        entry("tokenizer.ggml.bos_token_id", UINT32, 1),
        entry("tokenizer.ggml.eos_token_id", UINT32, 2),
        entry("tokenizer.ggml.add_bos_token", BOOL, 1),
        entry("tokenizer.ggml.add_eos_token", BOOL, 0),
        entry("tokenizer.chat_template", STRING, TEMPLATE),
    )


def embedding(tokens: Sequence[Token]) -> tuple[Tensor, ...]:
    """What turns tokens into vectors and vectors into tokens."""
    shape = (WIDTH, len(tokens))
    output = weights("output.weight", shape)
    row = 4 * WIDTH
    spoken = b"".join(
        output.data[number * row :][:row]
        if token.kind == NORMAL and token.text.isalpha()
        else bytes(row)
        for number, token in enumerate(tokens)
    )
    return (
        weights("token_embd.weight", shape),
        ones("output_norm.weight"),
        Tensor(output.name, shape, spoken),
    )


def block(number: int) -> tuple[Tensor, ...]:
    """One layer: attention and feed-forward."""
    name = f"blk.{number}"
    square, up, down = (WIDTH, WIDTH), (WIDTH, INNER), (INNER, WIDTH)
    return (
        ones(f"{name}.attn_norm.weight"),
        weights(f"{name}.attn_q.weight", square),
        weights(f"{name}.attn_k.weight", square),
        weights(f"{name}.attn_v.weight", square),
        weights(f"{name}.attn_output.weight", square),
        ones(f"{name}.ffn_norm.weight"),
        weights(f"{name}.ffn_gate.weight", up),
        weights(f"{name}.ffn_down.weight", down),
        weights(f"{name}.ffn_up.weight", up),
    )


def ones(name: str) -> Tensor:
    """A norm that scales nothing."""
    return Tensor(name, (WIDTH,), floats([1.0] * WIDTH))


def weights(name: str, shape: tuple[int, int]) -> Tensor:
    """A matrix of random numbers that its name decides."""
    drawn = hashlib.shake_128(SEED + name.encode()).digest(2 * shape[0] * shape[1])
    numbers = struct.unpack(f"<{len(drawn) // 2}h", drawn)
    return Tensor(name, shape, floats([SPREAD * number / 32768 for number in numbers]))


def floats(numbers: Iterable[float]) -> bytes:
    """Numbers as the file has them."""
    packed = array("f", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def render_infos(tensors: Sequence[Tensor]) -> bytes:
    """What the file says of its tensors."""
    rendered = b""
    offset = 0
    for tensor in tensors:
        dimensions = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        rendered += text(tensor.name) + dimensions + struct.pack("<IQ", F32, offset)
        offset += len(padded(tensor.data))
    return rendered


def padded(data: bytes) -> bytes:
    """`data` up to the next multiple of ALIGNMENT."""
    return data + bytes(-len(data) % ALIGNMENT)


def entry(key: str, kind: int, value: Value) -> bytes:
    """An entry with one value."""
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def entries(key: str, kind: int, values: Sequence[Value]) -> bytes:
    """An entry with an array."""
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(scalar(kind, value) for value in values)


def scalar(kind: int, value: Value) -> bytes:
    """A value of that type."""
    return text(str(value)) if kind == STRING else struct.pack(PACKED[kind], value)


def text(value: str) -> bytes:
    """A string: its length in bytes, then UTF-8."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
