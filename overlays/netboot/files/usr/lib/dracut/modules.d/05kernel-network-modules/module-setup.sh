#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Takes the place of dracut's module of this name, because dracut uses the first of a name: the
# drivers of the NICs that nodes boot from instead of all of them with their firmware.
# in:  the kernel's modules; firmware packages
# out: drivers in the initrd, with the firmware that the root has for them

check() {
    return 255
}

installkernel() {
    # 1. Boards, servers, machines in QEMU.
    hostonly='' instmods \
        igc igb e1000e e1000 ixgbe i40e ice r8169 atlantic bnxt_en tg3 mlx4_en mlx5_core \
        virtio_net virtio_pci
    # 2. PHYs that a driver asks for by id, so that no dependency names them.
    hostonly='' instmods realtek aquantia
    # 3. USB adapters and the controllers they hang on.
    hostonly='' instmods \
        r8152 ax88179_178a asix cdc_ether cdc_ncm \
        xhci_hcd xhci_pci xhci_pci_renesas ehci_pci
    # 4. What dracut's network code expects.
    hostonly='' instmods af_packet ipv6 8021q
}
