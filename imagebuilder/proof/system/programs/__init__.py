# SPDX-License-Identifier: Apache-2.0
"""What a site's programs and scripts need: options, variables, folders, modules."""
