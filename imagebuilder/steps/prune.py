# SPDX-License-Identifier: Apache-2.0
"""Remove what the overlays' prune rules name, once all packages are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.steps.step import Step, StepWorkspace

VERSION = 1
KEPT = (
    "/", "/usr", "/etc", "/var", "/boot", "/usr/bin", "/usr/lib", "/usr/sbin", "/usr/share",
    "/bin", "/lib", "/lib64", "/sbin",
)  # fmt: skip
UNMATCHED = "nothing matches "

# Reads one glob a line; pathname expansion is the shell's, nothing else of the line is evaluated.
PRUNE = """\
set -eu
status=0
while IFS= read -r rule; do
  IFS=''
  set +f
  found=0
  for path in $rule; do
    if [ -e "$path" ] || [ -L "$path" ]; then
      printf 'removed %s\\n' "$path"
      rm -rf --one-file-system -- "$path"
      found=1
    fi
  done
  if [ "$found" = 0 ]; then printf 'nothing matches %s\\n' "$rule"; status=3; fi
done
exit "$status"
"""


@dataclass(frozen=True)
class PruneStep(Step):
    """Globs of paths, from all overlays in order."""

    rules: tuple[str, ...]
    title: ClassVar[str] = "prune"

    def inputs(self) -> Mapping[str, Json]:
        return {"step": f"prune {VERSION}", "rules": list(self.rules), "epoch": self.epoch}

    def apply(self, workspace: StepWorkspace) -> None:
        for rule in self.rules:
            if rule.rstrip("/*") in KEPT or not rule.startswith("/"):
                raise WorkError(
                    f"prune rule {rule} would remove the system",
                    hint="name what to remove below /usr/share, /usr/lib/firmware and the like",
                )
        text = "".join(f"{rule}\n" for rule in self.rules)
        lines: list[str] = []
        try:
            replace(workspace, on_line=lines.append).run(["sh", "-c", PRUNE], stdin=text.encode())
        except WorkError as error:
            unmatched = [line for line in lines if line.startswith(UNMATCHED)]
            if not unmatched:
                raise
            raise WorkError(
                "; ".join(unmatched),
                hint="correct the rule in its overlay: a package has moved its files",
            ) from error
