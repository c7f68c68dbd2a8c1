# SPDX-License-Identifier: Apache-2.0
"""Static checks of the files in an image, without an accelerator: one package per question."""
