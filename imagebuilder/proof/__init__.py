# SPDX-License-Identifier: Apache-2.0
"""Static checks of the files in an image, which need no accelerator: one package a question."""
