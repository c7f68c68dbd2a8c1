# SPDX-License-Identifier: Apache-2.0
"""Runs in an image, with the Python of one of its environments: what it imports, what torch is for.

usage: python -I -c "$program" MODULE...

Prints, after whatever the modules print, one line: MARK and JSON with `python` (its version),
`modules` (by name their `version`, or `error` and the `path` and `line` that raised it), and where
they are there `torch` (`version`, `cuda`, `hip`, `xpu`, `flags`: the targets that it has code for)
and `vllm` (`platform`, `device`: what it would compute on here).
"""

from __future__ import annotations

import importlib
import json
import platform
import sys
import traceback

MARK = "imagebuilder-environment "
MOST = 300  # characters of an error


def try_import(name: str) -> dict[str, object]:
    """The module's version, or why it does not import."""
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - a module may end the process: that is an answer
        said = (str(error).strip().splitlines() or [""])[-1][:MOST]
        frames = traceback.extract_tb(error.__traceback__)
        last = next((f for f in reversed(frames) if not f.filename.startswith("<")), None)
        return {
            "error": f"{type(error).__name__}: {said}".rstrip(": "),
            "path": last.filename if last else "",
            "line": last.lineno if last else 0,
        }
    return {"version": str(getattr(module, "__version__", ""))}


def look_at_torch() -> dict[str, object]:
    """What torch is made for; both lists of targets can be read without a device."""
    torch = sys.modules["torch"]
    flags = ""
    for name in ("_cuda_getArchFlags", "_xpu_getArchFlags"):
        found = getattr(torch._C, name, None)
        flags = flags or (found() or "" if found else "")
    made = {name: getattr(torch.version, name, None) or "" for name in ("cuda", "hip", "xpu")}
    return {"version": torch.__version__, **made, "flags": flags.split()}


def look_at_vllm() -> dict[str, object]:
    """What vLLM chooses where this runs."""
    try:
        chosen = importlib.import_module("vllm.platforms").current_platform
    except BaseException as error:  # noqa: BLE001 - as above
        return {"error": f"{type(error).__name__}: {error}"[:MOST]}
    return {"platform": type(chosen).__name__, "device": chosen.device_type or ""}


def main() -> None:
    """Import everything, and print."""
    modules = {name: try_import(name) for name in sys.argv[1:]}
    said: dict[str, object] = {"python": platform.python_version(), "modules": modules}
    # Also when another module has brought it.
    if "torch" in sys.modules and "error" not in modules.get("torch", {}):
        said["torch"] = look_at_torch()
    if "error" not in modules.get("vllm", {"error": ""}):
        said["vllm"] = look_at_vllm()
    sys.stdout.write(f"\n{MARK}{json.dumps(said)}\n")


if __name__ == "__main__":
    main()
