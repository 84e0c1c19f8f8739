#!/usr/bin/env bash
# Builds h2spec, the HTTP/2 conformance suite, from the Go module proxy: tools/h2spec.sh DIRECTORY
#
# h2spec does not pin its dependencies; the versions below can be built with Debian 12's Go.
set -euo pipefail

directory=${1:?usage: tools/h2spec.sh DIRECTORY}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
[[ -x $directory/h2spec ]] && exit 0
export PATH=$PATH:/usr/local/go/bin GOTOOLCHAIN=local GOFLAGS=-mod=mod
command -v go >/dev/null || { echo "go is missing; tools/install-deps.sh installs it" >&2; exit 1; }
module=$(mktemp -d)
trap 'rm -rf "$module"' EXIT
cd "$module"
go mod init weir.example/h2spec 2>/dev/null
go get github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible golang.org/x/net@v0.17.0 golang.org/x/sys@v0.13.0 \
  golang.org/x/text@v0.13.0 github.com/spf13/cobra@v1.6.1 github.com/spf13/pflag@v1.0.5 github.com/fatih/color@v1.15.0
go build -o "$directory/h2spec.new" github.com/summerwind/h2spec/cmd/h2spec
mv "$directory/h2spec.new" "$directory/h2spec"
