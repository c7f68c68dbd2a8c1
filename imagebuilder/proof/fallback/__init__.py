# SPDX-License-Identifier: Apache-2.0
"""Question 7, silent fallback: what an engine computes on with and without its device."""

from __future__ import annotations

from imagebuilder.image.proof import Question
from imagebuilder.proof.say import Say

SAY = Say(Question.FALLBACK)
