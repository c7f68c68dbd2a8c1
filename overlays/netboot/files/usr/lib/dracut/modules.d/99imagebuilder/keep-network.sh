#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pre-pivot hook, the last of ours: the network must stay as it is while systemd-networkd stops here
# and starts in the new root, whose files come over that network.  networkd sees to this by itself
# for a root on NFS, but does not see one under an overlay.
# in:  /run/systemd/network/*.network, made from ip= by systemd-network-generator; the DHCP lease
# out: a drop-in for each, which moves with /run into the new root; the host name that DHCP gave,
#      which networkd may not set without polkit, and which systemd keeps; the last report, with the
#      PCI ids of the cards, by which `imagebuilder adopt` proposes a profile

. /lib/imagebuilder-lib.sh

# The same client identifier as here, or the server gives the node another address.
keep() {
    mkdir -p "$1.d"
    cat > "$1.d/50-imagebuilder.conf" << EOF
[Network]
KeepConfiguration=yes
[DHCPv4]
ClientIdentifier=mac
UseHostname=no
EOF
}

# lease_name NIC: from the lease file, which systemd 261 and later do not write any more
lease_name() {
    {
        sed -n 's/^HOSTNAME=//p' "/run/systemd/netif/leases/$(cat "/sys/class/net/$1/ifindex")" ||
            networkctl --no-pager --no-legend --full dhcp-lease "$1" | sed -n 's/^ *12 .* //p'
    } 2> /dev/null
}

# cards: the PCI ids of display controllers, accelerators and other processors; "none" without any
cards() {
    for device in /sys/bus/pci/devices/*; do
        read -r class < "$device/class" || continue
        case $class in 0x03* | 0x0b* | 0x11* | 0x12*) ;; *) continue ;; esac
        read -r vendor < "$device/vendor" && read -r id < "$device/device" &&
            echo "${vendor#0x}:${id#0x}"
    done 2> /dev/null | busybox sort -u | busybox head -n 16 | busybox tr '\n' ','
}

if [ -e "$ib_run/nic" ]; then
    for file in /run/systemd/network/*.network; do [ ! -e "$file" ] || keep "$file"; done
    read -r nic < "$ib_run/nic"
    name=$(lease_name "$nic")
    case $name in
        '' | *[!A-Za-z0-9.-]*) ;;
        *) echo "${name%%.*}" > /proc/sys/kernel/hostname ;;
    esac
    pci=$(cards)
    pci=${pci%,}
    stage switch-root "pci=${pci:-none}"
fi
