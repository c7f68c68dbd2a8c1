# SPDX-License-Identifier: Apache-2.0
"""What the profile's services run with, after systemd has merged their units."""

from __future__ import annotations

from imagebuilder.image.proof import Question
from imagebuilder.proof.say import Say

SAY = Say(Question.SERVICES)
