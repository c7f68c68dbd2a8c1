# SPDX-License-Identifier: Apache-2.0
"""What the services of the profile really run with, as systemd merges their units."""

from __future__ import annotations

from imagebuilder.image.proof import Question
from imagebuilder.proof.say import Say

SAY = Say(Question.SERVICES)
