#!/bin/sh
# Prints the kernel's counters of wrong checksums in this network namespace: "errors NAME NUMBER" for each counter.
# In /proc/net/snmp, the first line of a protocol contains the names of the counters, and the second line contains their
# values. The TCP counters are for both IP versions.
exec awk '/^(Tcp|Udp|Icmp):/ {
    if (!($1 in seen)) { seen[$1] = 1; split($0, names); next }
    split($0, values)
    for (i in names) if (names[i] == "InCsumErrors") print "errors", $1, values[i]
  }
  /^(Udp|Icmp)6InCsumErrors/ { print "errors", $1, $2 }' /proc/self/net/snmp /proc/self/net/snmp6
