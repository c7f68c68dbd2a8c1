#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The network root of imagebuilder: a tree or a file on NFS, a file over HTTP, a writable tmpfs on
# top, the node's own files.  Numbered after dracut's own modules, because it takes parts of them away.
# in:  busybox, mount, the dracut modules named in depends()
# out: hooks and programs in the initrd; docs/netboot-root.md tells what they do

check() {
    require_binaries busybox mount umount losetup timeout stat od || return 1
    if ! [[ -e /etc/netconfig && -e /etc/protocols ]]; then
        derror 'NFSv3 needs /etc/netconfig (libtirpc-common) and /etc/protocols (netbase)'
        return 1
    fi
    return 255
}

depends() {
    echo "dash systemd-initrd dracut-systemd systemd-networkd nfs"
}

installkernel() {
    hostonly='' instmods overlay loop squashfs erofs nfs nfsv3 nfsv4
    # What the kernel says, sent to the boot server where nodes.yaml wants it.
    hostonly='' instmods netconsole
    # A keyboard for whoever stands before a node that did not boot.
    hostonly='' instmods usbhid hid_generic
}

install() {
    inst_multiple busybox mount umount losetup timeout stat od sed
    inst_simple "$moddir/imagebuilder-lib.sh" /lib/imagebuilder-lib.sh
    inst_simple "$moddir/imagebuilder-image.sh" /lib/imagebuilder-image.sh
    inst_simple "$moddir/imagebuilder-fetch.sh" /lib/imagebuilder-fetch.sh
    inst_script "$moddir/imagebuilderroot.sh" /sbin/imagebuilderroot
    inst_hook cmdline 92 "$moddir/take-root.sh"
    inst_hook initqueue/timeout 10 "$moddir/no-network.sh"
    inst_hook pre-pivot 50 "$moddir/node-files.sh"
    inst_hook pre-pivot 90 "$moddir/keep-network.sh"

    # USB NICs are named by their address in the real root: name them so from the start.
    inst_simple /usr/lib/systemd/network/73-usb-net-by-mac.link

    # It waits for every NIC, plugged in or not; dracut asks each of them in turn anyway.
    systemctl -q --root "$initdir" mask systemd-networkd-wait-online.service

    # The real root sets the kernel's variables; the initrd mounts no partition of a local disk.
    systemctl -q --root "$initdir" mask systemd-sysctl.service
    rm -f "$initdir/usr/lib/systemd/system-generators/systemd-gpt-auto-generator"

    # The initrd needs drivers of buses, not rules for consoles, memory and what is in /sys/module:
    # five of six events, which the real root has again, and thousands on a machine with much memory.
    mkdir -p "$initdir/etc/systemd/system/systemd-udev-trigger.service.d"
    printf '[Service]\nExecStart=\nExecStart=-udevadm trigger --type=devices --action=add%s\n' \
        "$(printf ' --subsystem-nomatch=%s' tty vc memory cpu mem misc wakeup workqueue event_source)" \
        > "$initdir/etc/systemd/system/systemd-udev-trigger.service.d/50-imagebuilder.conf"

    # We mount without locks and with numeric owners: none of these daemons has work to do.
    rm -f "$initdir"/usr/sbin/{rpcbind,rpc.statd,rpc.idmapd} \
        "$initdir"{/var,}/lib/dracut/hooks/pre-udev/*-nfs-start-rpc.sh \
        "$initdir"{/var,}/lib/dracut/hooks/cleanup/*-nfsroot-cleanup.sh
}
