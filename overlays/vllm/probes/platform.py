# SPDX-License-Identifier: Apache-2.0
"""What vLLM chooses to compute on where this runs.

A build for the processor says so in its version or in its package's name, and never looks for a GPU
(vllm/platforms/__init__.py, cpu_platform_plugin); any other finds no platform without its device.
"""

from __future__ import annotations

import json

from vllm.platforms import current_platform

platform = type(current_platform).__name__
print(json.dumps({"platform": platform, "device": current_platform.device_type or ""}))
