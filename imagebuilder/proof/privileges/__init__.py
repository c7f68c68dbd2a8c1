# SPDX-License-Identifier: Apache-2.0
"""Who may become root: every way in the image, and which overlay or package accounts for it."""
