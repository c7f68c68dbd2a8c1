# SPDX-License-Identifier: Apache-2.0
"""A tiny language model that vLLM loads: a Llama with random weights, and a token for every byte.

usage: python3 model.py FOLDER

It writes what vLLM reads of a model: config.json, tokenizer.json, tokenizer_config.json (those of
Hugging Face's transformers) and model.safetensors, whose format is the length of a JSON header in
eight bytes, the header, and the tensors in its order.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from array import array
from pathlib import Path

WIDTH, INNER, LAYERS, HEADS, CONTEXT = 128, 256, 2, 4, 256
SPREAD = 0.08  # of weights, to both sides of zero
SEED = b"imagebuilder"
SPECIAL = ("<s>", "</s>")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "dtype": "float32",
    "torch_dtype": "float32",
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": SPECIAL[0],
    "eos_token": SPECIAL[1],
    "model_max_length": CONTEXT,
    "chat_template": "{% for message in messages %}{{ message['content'] }}\n{% endfor %}",
}


def make_model(folder: Path) -> None:
    """Write the model, always the same bytes: less than 2 MB."""
    folder.mkdir(parents=True)
    words = [*SPECIAL, *sorted(alphabet())]
    config = {**CONFIG, "vocab_size": len(words)}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(words)))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
    (folder / "model.safetensors").write_bytes(safetensors(tensors(len(words))))


def alphabet() -> list[str]:
    """A printable letter for every byte, as GPT-2's byte-level BPE has them."""
    own = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = len(set(range(0x100)) - set(own))
    return [*map(chr, own), *(chr(0x100 + number) for number in range(others))]


def tokenizer(words: list[str]) -> dict[str, object]:
    """A tokenizer of these words, in the format of Hugging Face's tokenizers."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": words.index(word), "content": word, **flags, "special": True} for word in SPECIAL
        ],
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [],
        },
    }


def tensors(words: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a Llama's weights."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (words, WIDTH),
        "lm_head": (words, WIDTH),
        "model.norm": (WIDTH,),
    }
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        shapes |= {f"{layer}.self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"}
        shapes |= {f"{layer}.mlp.{name}_proj": (INNER, WIDTH) for name in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj"] = (WIDTH, INNER)
        shapes[f"{layer}.input_layernorm"] = (WIDTH,)
        shapes[f"{layer}.post_attention_layernorm"] = (WIDTH,)
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def safetensors(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """A file with 32-bit floats of these shapes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in shapes.items():
        made = values(name, shape)
        place = [len(data), len(data) + len(made)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": place}
        data += made
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + data


def values(name: str, shape: tuple[int, ...]) -> bytes:
    """Ones for a norm; numbers that look random, and depend on the name alone, for a matrix."""
    if len(shape) == 1:
        return array("f", [1.0] * shape[0]).tobytes()
    many = shape[0] * shape[1]
    drawn = array("H", hashlib.shake_256(SEED + name.encode()).digest(2 * many))
    return array("f", (SPREAD * (number / 0x8000 - 1) for number in drawn)).tobytes()


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
