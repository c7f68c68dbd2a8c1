# SPDX-License-Identifier: Apache-2.0
"""Runs in an image with the Python of an environment: reports its imports and its torch's targets.

usage: python -I -c "$program" ENGINES MODULE...

ENGINES is JSON: the names of engines to their module and the text of their program, which runs if
the module was imported, and prints JSON.

Prints, after whatever the modules print, one line: MARK and JSON with `python` (its version),
`modules` (by name their `version`, or `error` and the `path` and `line` that raised it), if
imported `torch` (`version`, `cuda`, `hip`, `xpu`, `flags`: the targets that it has code for), and
`platforms` (by name what the program of an engine printed, or `error`).
"""

from __future__ import annotations

import contextlib
import importlib
import io
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


def describe_torch() -> dict[str, object]:
    """What torch is built for; both lists of targets can be read without a device."""
    torch = sys.modules["torch"]
    flags = ""
    for name in ("_cuda_getArchFlags", "_xpu_getArchFlags"):
        found = getattr(torch._C, name, None)
        flags = flags or (found() or "" if found else "")
    made = {name: getattr(torch.version, name, None) or "" for name in ("cuda", "hip", "xpu")}
    return {"version": torch.__version__, **made, "flags": flags.split()}


def run_program(text: str) -> object:
    """What a program prints; run in this process, because importing its engine takes long."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "program", "exec"), {"__name__": "__main__"})
        return json.loads(printed.getvalue().strip().rpartition("\n")[2])
    except BaseException as error:  # noqa: BLE001 - as above
        return {"error": f"{type(error).__name__}: {error}"[:MOST]}


def main() -> None:
    engines: dict[str, tuple[str, str]] = json.loads(sys.argv[1])
    modules = {name: try_import(name) for name in sys.argv[2:]}
    said: dict[str, object] = {"python": platform.python_version(), "modules": modules}
    # Another module may have imported it.
    if "torch" in sys.modules and "error" not in modules.get("torch", {}):
        said["torch"] = describe_torch()
    said["platforms"] = {
        name: run_program(text)
        for name, (module, text) in engines.items()
        if "error" not in modules.get(module, {"error": ""})
    }
    sys.stdout.write(f"\n{MARK}{json.dumps(said)}\n")


if __name__ == "__main__":
    main()
