#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Enterprise Linux removes this module from its dracut, because its /bin/sh is bash: who depends on
# dash gets that.
# in:  the dracut module bash
# out: nothing of its own

check() {
    return 255
}

depends() {
    echo bash
}

install() {
    return 0
}
