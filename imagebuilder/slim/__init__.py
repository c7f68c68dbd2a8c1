# SPDX-License-Identifier: Apache-2.0
"""Remove from a root what the profile's nodes do not need; runs in the step's sandbox."""
