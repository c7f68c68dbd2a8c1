# SPDX-License-Identifier: Apache-2.0
"""Who may open the accelerator's devices, and whether services can use them."""
