# SPDX-License-Identifier: Apache-2.0
"""Question 7, silent fallback: what an engine computes on with and without its device."""
