#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cmdline hook, after dracut's nfs module has parsed root=: makes imagebuilderroot the one that
# mounts it.  (netroot(8) of dracut calls the program named by what is before the first colon.)
# in:  root=nfs:... root=nfs4:... root=http://...; netroot of dracut's nfs module
# out: netroot, rootok; dracut waits until the root is there

. /lib/imagebuilder-lib.sh

# dracut's nfs module moves what root= said to netroot.
case ${netroot:-$root} in
    nfs:* | nfs4:* | http://*)
        netroot="imagebuilder:${netroot:-$root}"
        # shellcheck disable=SC2034  # read by dracut-cmdline
        rootok=1
        # shellcheck disable=SC2016  # for when it runs
        echo '[ -d "$NEWROOT/proc" ]' > "$hookdir/initqueue/finished/imagebuilder.sh"
        stage network
        ;;
    # What other modules and systemd know; the drivers for it would have to be added.
    dhcp* | block:* | /dev/* | LABEL=* | UUID=* | PARTLABEL=* | PARTUUID=* | tmpfs | gpt-auto) ;;
    *)
        fail cmdline "root=$root is not a network root" \
            'root= on the kernel command line: nfs4:SERVER:/PATH, nfs:SERVER:/PATH or http://SERVER/PATH'
        ;;
esac
