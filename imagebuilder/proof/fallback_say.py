# SPDX-License-Identifier: Apache-2.0
"""The question that the modules fallback_*.py answer together."""

from __future__ import annotations

from imagebuilder.proof.say import Say
from imagebuilder.proof.types import Question

SAY = Say(Question.FALLBACK)
