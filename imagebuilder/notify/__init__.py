# SPDX-License-Identifier: Apache-2.0
"""Notifications: messages, who gets them, and their delivery."""
