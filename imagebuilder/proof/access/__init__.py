# SPDX-License-Identifier: Apache-2.0
"""Who may open the device, and which services wait for it."""
