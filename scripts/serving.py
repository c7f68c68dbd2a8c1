# SPDX-License-Identifier: Apache-2.0
"""Runs in an image, with the Python of its vLLM: make a tiny model, and ask a server about it.

usage: serving.py make FOLDER
       serving.py ask HOST PORT MODEL SECONDS LOG

`make` writes a Llama of two layers with random weights, always the same bytes, and a tokenizer
that knows every byte.  `ask` waits until the server is ready, asks for a completion and prints one
line of JSON; exit status 1, with the end of LOG on stderr, when there is none in SECONDS or LOG
ends with `server ended`.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from pathlib import Path

WIDTH, INNER, LAYERS, HEADS, CONTEXT = 128, 256, 2, 4, 256
SPREAD = 0.08  # of weights, to both sides of zero
SPECIAL = ("<s>", "</s>")
SHOWN = 40
MANY = 12
ENDED = "server ended"


def make_model(folder: Path) -> None:
    """Write everything that vLLM reads of a model."""
    folder.mkdir(parents=True)
    words = make_tokenizer(folder)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "vocab_size": words,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "dtype": "float32",
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    make_weights(folder, words)


def make_tokenizer(folder: Path) -> int:
    """Write the tokenizer; returns how many words it has."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIAL))
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "model_max_length": CONTEXT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(words)


def make_weights(folder: Path, words: int) -> None:
    """Write the weights under the names of a Llama."""
    import numpy
    from safetensors.numpy import save_file

    shapes = {"model.embed_tokens": (words, WIDTH), "lm_head": (words, WIDTH)}
    norms = ["model.norm"]
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        shapes |= {f"{layer}.self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"}
        shapes |= {f"{layer}.mlp.{name}_proj": (INNER, WIDTH) for name in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj"] = (WIDTH, INNER)
        norms += [f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"]
    chance = numpy.random.default_rng(1)
    weights = {
        f"{name}.weight": chance.uniform(-SPREAD, SPREAD, shape).astype(numpy.float32)
        for name, shape in shapes.items()
    }
    weights |= {f"{name}.weight": numpy.ones(WIDTH, numpy.float32) for name in norms}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def request(server: tuple[str, int], path: str, body: dict[str, object] | None) -> bytes:
    """The answer to a GET, or with `body` a POST.  Raises OSError and ValueError."""
    line = http.client.HTTPConnection(*server, timeout=120)
    if body is None:
        line.request("GET", path)
    else:
        line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    said = answer.read()
    if answer.status != http.client.OK:
        raise ValueError(f"{path} was answered with {answer.status}: {said[:400]!r}")
    return said


def is_ready(server: tuple[str, int], log: Path, seconds: float) -> bool:
    """Wait until the model is loaded; False when that will not be."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not log.read_text().rstrip().endswith(ENDED):
        try:
            request(server, "/health", None)
        except (OSError, ValueError, http.client.HTTPException):
            time.sleep(0.5)
        else:
            return True
    return False


def ask(host: str, port: int, model: str, seconds: float, log: Path) -> int:
    """Ask for a completion, and print what came."""
    began = time.monotonic()
    if not is_ready((host, port), log, seconds):
        print("\n".join(log.read_text().splitlines()[-SHOWN:]), file=sys.stderr)
        print(f"vLLM was not ready in {seconds:.0f} s, or has ended", file=sys.stderr)
        return 1
    loaded = time.monotonic()
    body: dict[str, object] = {
        "model": model,
        "prompt": "Hello",
        "max_tokens": MANY,
        "temperature": 0,
        "ignore_eos": True,
    }
    said = json.loads(request((host, port), "/v1/completions", body))
    print(
        json.dumps(
            {
                "version": json.loads(request((host, port), "/version", None))["version"],
                "completion": said["choices"][0]["text"],
                "tokens": said["usage"]["completion_tokens"],
                "ready_seconds": round(loaded - began, 1),
                "answer_seconds": round(time.monotonic() - loaded, 2),
            }
        )
    )
    return 0 if said["usage"]["completion_tokens"] == MANY else 1


def main() -> int:
    """Do what the command line says."""
    if sys.argv[1] == "make":
        make_model(Path(sys.argv[2]))
        return 0
    host, port, model, seconds, log = sys.argv[2:]
    return ask(host, int(port), model, float(seconds), Path(log))


if __name__ == "__main__":
    sys.exit(main())
