#!/bin/sh
# CGI program of the servers of virtio.sh and virtio-director.sh: returns the MD5 sum of the request's body.
echo "Content-Type: text/plain"
echo
md5sum | cut -d ' ' -f 1
