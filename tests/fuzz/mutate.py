# SPDX-License-Identifier: Apache-2.0
"""Mutations of a file: of its bytes, of its tokens, and of the values in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from imagebuilder.errors import InputError
from imagebuilder.recipe.positions import parse_document

TOKENS = (
    b"- ",
    b": ",
    b"\n",
    b"\n  ",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b"&x ",
    b"*x",
    b"!!str ",
    b"|",
    b">",
    b"? ",
    b"'",
    b'"',
    b"\\",
    b"#",
    b"~",
    b"1",
    b"1.5",
    b"true",
    b"null",
    b"---",
    b"...",
    b"<<",
    b"\t",
    b"\r",
    b"\x00",
    b"{{ a }}",
    b"{% if %}",
    b"{% for x in range(99999) %}",
    b"{{ 'a' * 10**9 }}",
    b"{#",
    b"\xff",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"NaN",
    b"Infinity",
    b"1e999",
    b"-0",
    b"9" * 5000,
    b"[" * 200,
    b'{"a":' * 200,
    b"\x1b[2J",
)
TEXTS = (
    "",
    " ",
    "a",
    "-",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/shadow",
    "/",
    "//",
    "/proc/self/mem",
    "/dev/zero",
    "~root/x",
    "a/../../b",
    "a\nb",
    "a\tb",
    "a\x00b",
    "\x1b[2J",
    "\u202e",
    "\u2028",
    "\ud800",
    "é" * 300,
    "😀",
    "{{ a }}",
    "{{ nope }}",
    "{% if %}",
    "{{ 'a' * 10**9 }}",
    "{{ range(99999)|list }}",
    "{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}",
    "$(id)",
    "`id`",
    ";id",
    "-rf",
    "--help",
    "%s%n",
    "1",
    "0",
    "true",
    "null",
    "NaN",
    "1e999",
    "nfs",
    "http",
    "52:54:00:77:00:01",
    "10.0.0.1/33",
    "256.1.1.1",
    "::1",
    "2026-13-45",
    "2026-01-01T00:00:00",
    "2026-01-01T00:00:00+00:00",
    "9999-12-31T23:59:59+00:00",
    "9999-12-31T23:59:59-23:59",
    "99999-01-01T00:00:00+00:00",
    "0001-01-01T00:00:00+23:59",
    "x" * 5000,
    "x" * 100_000,
    "sha256",
    "a" * 64,
    "1002:7480",
    "base",
    "files",
    "ssh",
    "http://[",
    "http://a:b/",
    "file:///etc/passwd",
)
NUMBERS = (
    0, 1, -1, 2, 7, 63, 64, 255, 65535, 65536, 1 << 31, 1 << 32, 1 << 63, 1 << 64, -(1 << 63),
    10**18, 10**30, 0.5, -0.0, 1e308, 1e-308, 4e15, 99999999999,
)  # fmt: skip
DEEPEST = 200
Value = object


def mutate(seed: bytes, random: Random) -> bytes:
    """Another file, one to four mutations away from `seed`."""
    content = seed
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        content = random.choice((change_bytes, insert_token, change_value, change_value))(
            content, random
        )
    return content


def change_bytes(content: bytes, random: Random) -> bytes:
    """Cut, repeat, swap or overwrite some bytes."""
    here = random.randrange(len(content) + 1)
    there = min(len(content), here + random.choice((1, 1, 2, 8, 64, 4096)))
    part = content[here:there]
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: content[:here],
        lambda: content[:here] + content[there:],
        lambda: content[:there] + part * random.choice((1, 2, 50)) + content[there:],
        lambda: content[:here] + random.randbytes(len(part)) + content[there:],
        lambda: content[:here] + part[::-1] + content[there:],
        lambda: content[there:] + content[:there],
    )
    return random.choice(ways)()


def insert_token(content: bytes, random: Random) -> bytes:
    """Put something that has a meaning in YAML, JSON or Jinja2 somewhere."""
    here = random.randrange(len(content) + 1)
    token = random.choice(TOKENS) if random.random() < 0.8 else random.choice(TEXTS).encode(
        errors="surrogatepass"
    )  # fmt: skip
    return content[:here] + token + content[here:]


def change_value(content: bytes, random: Random) -> bytes:
    """Another value somewhere in a file that can still be read, as JSON, which is YAML too."""
    value = read_value(content)
    if value is None:
        return insert_token(content, random)
    value = change_inside(value, random)
    text = json.dumps(value, ensure_ascii=random.random() < 0.3, indent=random.choice((None, 1)))
    return text.encode(errors="surrogatepass")


def read_value(content: bytes) -> Value:
    """The value in a file; None for none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass
    try:
        return parse_document(content, "seed").value
    except InputError:
        return None


def change_inside(value: Value, random: Random) -> Value:
    """`value` with a change at one place, more often deep than at the top."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        changed = dict(value)
        way = random.random()
        if way < 0.7:
            changed[key] = change_inside(value[key], random)
        elif way < 0.8:
            del changed[key]
        elif way < 0.9:
            changed[random.choice((*TEXTS[:50], *value))] = make_value(random, 2)
        else:
            changed[random.choice(list(value))] = value[key]
        return changed
    if isinstance(value, list) and value and random.random() < 0.85:
        index = random.randrange(len(value))
        way = random.random()
        if way < 0.7:
            return [*value[:index], change_inside(value[index], random), *value[index + 1 :]]
        if way < 0.8:
            return value[:index] + value[index + 1 :]
        return [*value, *[value[index]] * random.choice((1, 2, 1000))]
    return make_value(random, 3)


def make_value(random: Random, depth: int) -> Value:
    """Any value; sometimes a very deep one."""
    way = random.random()
    if way < 0.35:
        return random.choice(TEXTS)
    if way < 0.55:
        return random.choice(NUMBERS)
    if way < 0.65:
        return random.choice((None, True, False))
    if way < 0.70:
        nested: Value = "x"
        for _ in range(random.choice((5, 30, 70, DEEPEST))):
            nested = [nested] if random.random() < 0.5 else {"a": nested}
        return nested
    if depth == 0:
        return random.choice(([], {}))
    inside = [make_value(random, depth - 1) for _ in range(random.randrange(4))]
    return inside if way < 0.85 else dict(zip(map(str, TEXTS[2:]), inside, strict=False))
