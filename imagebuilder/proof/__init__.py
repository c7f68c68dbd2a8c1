# SPDX-License-Identifier: Apache-2.0
"""The inspector that needs no accelerator: seven questions to the bytes of an image."""
