#!/usr/bin/env bash
# Builds an OpenTelemetry collector from the Go module proxy, for the long test of [tracing]: tools/otelcol.sh DIRECTORY
#
# All modules of the collector must have the same version.
set -euo pipefail

directory=${1:?usage: tools/otelcol.sh DIRECTORY}
source=$(cd "$(dirname "$0")/otelcol" && pwd)
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
[[ $directory/otelcol -nt $source/main.go ]] && exit 0
export PATH=$PATH:/usr/local/go/bin GOTOOLCHAIN=local GOFLAGS=-mod=mod
command -v go >/dev/null || { echo "go is missing; tools/install-deps.sh installs it" >&2; exit 1; }
module=$(mktemp -d)
trap 'rm -rf "$module"' EXIT
cp "$source/main.go" "$module"
cd "$module"
go mod init weir.example/otelcol 2>/dev/null
go get go.opentelemetry.io/collector/otelcol@v0.161.0 \
  go.opentelemetry.io/collector/receiver/otlpreceiver@v0.161.0 \
  github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter@v0.161.0
go build -p 1 -o "$directory/otelcol.new" .
mv "$directory/otelcol.new" "$directory/otelcol"
