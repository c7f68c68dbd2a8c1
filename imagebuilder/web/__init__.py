# SPDX-License-Identifier: Apache-2.0
"""Pages, JSON, events and metrics: what is known, for people and programs.  It decides nothing."""
