# SPDX-License-Identifier: Apache-2.0
"""Whether a node starts, is reachable and usable: units, network, names, accounts."""

from __future__ import annotations

from imagebuilder.image.proof import Question
from imagebuilder.proof.say import Say

SAY = Say(Question.SYSTEM)
