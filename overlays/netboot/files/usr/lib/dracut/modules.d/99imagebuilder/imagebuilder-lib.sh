#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stages, reports and failures of the network root; sourced by the other scripts.
# in:  imagebuilder.report=URL and imagebuilder.netconsole=PORT on the kernel command line
# out: lines on the kernel console, /run/imagebuilder/{stages,nic,node,failure}, HTTP requests

command -v getarg > /dev/null || . /lib/dracut-lib.sh

ib_run=/run/imagebuilder
ib_mounts=/run/initramfs/imagebuilder # systemd leaves what is below /run/initramfs mounted

# say TEXT: a line on every console, even with `quiet`, and in the journal
say() {
    level=29
    getarg quiet > /dev/null && level=27
    echo "<$level>imagebuilder: $1" > /dev/kmsg
}

# stage NAME [QUERY]: the node begins this stage; QUERY goes into the report
stage() {
    mkdir -p "$ib_run"
    read -r ib_uptime _ < /proc/uptime
    echo "$ib_uptime $1" >> "$ib_run/stages"
    say "stage $1"
    report "stage=$1&uptime=$ib_uptime${2:+&$2}"
}

# report QUERY: tell the server, once it is known which NIC we boot from.  A server that answers
# with an error costs nothing.  What one that is too slow has not taken is told before the next
# report; it costs the boot at most 9 s.
report() {
    getarg imagebuilder.report= > /dev/null || return 0
    echo "$1" >> "$ib_run/unsent"
    [ ! -e "$ib_run/node" ] || send_reports
}

# send_reports: what is unsent, in order, as far as the server takes it
send_reports() {
    ib_url=$(getarg imagebuilder.report=) || return 0
    case $ib_url in *\?*) ib_url="$ib_url&" ;; *) ib_url="$ib_url?" ;; esac
    read -r ib_node < "$ib_run/node"
    ib_slow=0
    [ ! -e "$ib_run/slow" ] || read -r ib_slow < "$ib_run/slow"
    while [ "$ib_slow" -lt 3 ] && read -r ib_query < "$ib_run/unsent"; do
        timeout 3 busybox wget -q -O /dev/null "$ib_url$ib_query&node=$ib_node" 2> /dev/null
        if [ $? -eq 124 ]; then
            echo $((ib_slow + 1)) > "$ib_run/slow"
            break
        fi
        sed -i 1d "$ib_run/unsent" || break # no space: the boot goes on
    done
    return 0
}

# boot_nic SERVER: remember the NIC that leads to SERVER and report what happened before
boot_nic() {
    ib_nic=$(ip -o route get "$1" 2> /dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p')
    [ -e "/sys/class/net/$ib_nic/address" ] || return 0
    echo "$ib_nic" > "$ib_run/nic"
    cat "/sys/class/net/$ib_nic/address" > "$ib_run/node"
    send_console "$1"
    [ ! -e "$ib_run/unsent" ] || send_reports
}

# send_console SERVER: with imagebuilder.netconsole=PORT the kernel sends what it says to SERVER, by
# the NIC we boot from, beginning with its first message; no boot fails for it
send_console() {
    ib_port=$(getarg imagebuilder.netconsole=) || return 0
    ib_route=$(ip -o route get "$1")
    ib_from=$(echo "$ib_route" | sed -n 's/.* src \([^ ]*\).*/\1/p')
    ib_next=$(echo "$ib_route" | sed -n 's/.* via \([^ ]*\).*/\1/p')
    ib_next=${ib_next:-$1}
    # So that the neighbour's address is known; whether it answers does not matter.
    busybox ping -c 1 -W 1 "$ib_next" > /dev/null 2>&1
    ib_mac=$(ip -o neighbour show to "$ib_next" dev "$ib_nic" | sed -n 's/.* lladdr \([^ ]*\).*/\1/p')
    modprobe netconsole \
        "netconsole=+$ib_port@$ib_from/$ib_nic,$ib_port@$1/${ib_mac:-ff:ff:ff:ff:ff:ff}" ||
        say "the console is not sent: there is no netconsole for $ib_nic"
    return 0
}

# fail STAGE WHAT HINT...: say what is wrong and where to look, then do what dracut does
# (rd.shell=, rd.emergency=); returns when a person leaves the shell
fail() {
    ib_stage=$1
    mkdir -p "$ib_run"
    {
        echo "BOOT FAILED in stage $1: $2"
        shift 2
        for ib_hint; do echo "  look at: $ib_hint"; done
    } > "$ib_run/failure"
    while read -r ib_line; do say "$ib_line"; done < "$ib_run/failure"
    report "stage=failed&at=$ib_stage"
    # Once more right above the prompt of the emergency shell.
    echo "cat $ib_run/failure > /dev/console" > "$hookdir/emergency/50-imagebuilder.sh"
    emergency_shell "imagebuilder: boot failed in stage $ib_stage"
}
