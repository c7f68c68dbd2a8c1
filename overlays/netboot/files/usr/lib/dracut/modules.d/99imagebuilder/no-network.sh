#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# initqueue/timeout hook: dracut waited two thirds of rd.retry= and no NIC got an address.
# in:  the state of the NICs
# out: the failure of stage network

. /lib/imagebuilder-lib.sh

nics() {
    for nic in /sys/class/net/*; do
        [ -e "$nic/device" ] || continue
        read -r address < "$nic/address"
        if [ "$(cat "$nic/carrier" 2> /dev/null)" = 1 ]; then
            link='link is up, no answer to DHCP'
        else
            link='no link (cable, switch port)'
        fi
        driver=$(readlink "$nic/device/driver")
        echo "${nic##*/} $address ${driver##*/}: $link"
    done
}

if [ -e "$hookdir/initqueue/finished/imagebuilder.sh" ] && [ ! -e "$ib_run/node" ]; then
    set --
    while read -r line; do [ -z "$line" ] || set -- "$@" "$line"; done << EOF
$(nics)
EOF
    [ $# -gt 0 ] || set -- 'the NIC: no driver in this initrd takes it (lspci -nn, overlay netboot)'
    fail network "no network interface got an address" "$@" \
        'the DHCP server: does it run on this network, has it free addresses, what is in its log' \
        'ip= on the kernel command line'
fi
