# SPDX-License-Identifier: Apache-2.0
"""What becomes of a night: its record, the pages, who is told, the timer."""
