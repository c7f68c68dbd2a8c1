# SPDX-License-Identifier: Apache-2.0
"""`python -m imagebuilder.slim ROOT ORDER FACTS`: slim the root according to the JSON file ORDER.

Prints a line per removal, and their sum; sizes by kind go to the file FACTS.  A fault is a line
that begins with FAULT, with exit status 1; some files may already be removed then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from imagebuilder.root import Root
from imagebuilder.slim.code import slim_code
from imagebuilder.slim.firmware import slim_firmware
from imagebuilder.slim.modules import slim_modules
from imagebuilder.slim.types import FAULT, REPLACED, Kind, SlimChange, SlimError, SlimOrder, Told
from imagebuilder.slim.unlinked import slim_unlinked
from imagebuilder.ui import format_size


def main() -> int:
    order = TypeAdapter(SlimOrder).validate_json(Path(sys.argv[2]).read_bytes())
    changes: list[SlimChange] = []
    try:
        for told in slim(Root(Path(sys.argv[1])), order):
            print(told, flush=True)
            changes.extend([told] if isinstance(told, SlimChange) else [])
    except SlimError as error:
        print(FAULT + json.dumps([error.what, error.hint]))
        return 1
    print(tell_sum(changes))
    Path(sys.argv[3]).write_text(json.dumps(facts_of(changes)))
    return 0


def slim(root: Root, order: SlimOrder) -> Iterator[Told]:
    """All kinds in order; libraries last, because the others change what links to them."""
    yield from slim_code(root, order)
    yield from slim_firmware(root, order)
    yield from slim_modules(root, order)
    yield from slim_unlinked(root, order)


def facts_of(changes: Sequence[SlimChange]) -> Mapping[str, int]:
    """Removed bytes and files by kind, and REPLACED."""
    found = {REPLACED: sum(each.before for each in changes)} if changes else {}
    for kind in Kind:
        of_kind = [each for each in changes if each.kind is kind]
        if of_kind:
            found[f"{kind}-bytes"] = sum(each.before - each.after for each in of_kind)
            found[f"{kind}-files"] = len(of_kind)
    return found


def tell_sum(changes: Sequence[SlimChange]) -> str:
    facts = facts_of(changes)
    total = sum(each.before - each.after for each in changes)
    parts = ", ".join(f"{kind} {format_size(facts[f'{kind}-bytes'])}" for kind in Kind
                      if f"{kind}-bytes" in facts)  # fmt: skip
    return f"{format_size(total)} less" + (f": {parts}" if parts else "")


if __name__ == "__main__":
    sys.exit(main())
