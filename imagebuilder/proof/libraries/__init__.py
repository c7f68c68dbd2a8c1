# SPDX-License-Identifier: Apache-2.0
"""Every library that a program loads."""

from __future__ import annotations

from imagebuilder.image.proof import Question
from imagebuilder.proof.say import Say

SAY = Say(Question.LIBRARIES)
