# SPDX-License-Identifier: Apache-2.0
"""What machines that compute together need of an image: agents of clusters, and programs that run
on several nodes.  The findings belong to the question `system`.
"""

from __future__ import annotations

from imagebuilder.image.proof import Question
from imagebuilder.proof.say import Say

SAY = Say(Question.SYSTEM)
