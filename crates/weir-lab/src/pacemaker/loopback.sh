#!/bin/sh
# OCF resource agent of the lab: an address on lo, as a clone. IPaddr2 would use CLUSTERIP for a clone.
#
# License: MIT or Apache-2.0

has() {
    ip -o addr show dev lo | grep -qF " $OCF_RESKEY_ip/32 "
}

case "$1" in
start)
    has || ip addr add "$OCF_RESKEY_ip/32" dev lo
    ;;
stop)
    # IPaddr2 with lvs_support may have removed the address.
    ! has || ip addr del "$OCF_RESKEY_ip/32" dev lo || ! has
    ;;
monitor | status)
    has || exit 7
    ;;
validate-all) ;;
meta-data)
    cat <<END
<?xml version="1.0"?>
<resource-agent name="loopback" version="1.0">
<version>1.0</version>
<longdesc lang="en">An address on lo.</longdesc>
<shortdesc lang="en">An address on lo</shortdesc>
<parameters>
<parameter name="ip" unique="1" required="1">
<longdesc lang="en">The address.</longdesc>
<shortdesc lang="en">address</shortdesc>
<content type="string"/>
</parameter>
</parameters>
<actions>
<action name="start" timeout="20s"/>
<action name="stop" timeout="20s"/>
<action name="monitor" timeout="20s" interval="5s"/>
<action name="validate-all" timeout="5s"/>
<action name="meta-data" timeout="5s"/>
</actions>
</resource-agent>
END
    ;;
*) exit 3 ;;
esac
