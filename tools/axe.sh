#!/usr/bin/env bash
# Fetches axe-core, which detects accessibility problems in web pages, for the long test of the dashboard:
#   tools/axe.sh DIRECTORY
#
# Only the test uses axe-core; it is not distributed (MPL-2.0). npm verifies its hash with the lock file.
set -euo pipefail

directory=${1:?usage: tools/axe.sh DIRECTORY}
source=$(cd "$(dirname "$0")/axe" && pwd)
mkdir -p "$directory"
if [[ -s $directory/node_modules/axe-core/axe.min.js ]]; then
  cmp -s "$source/package-lock.json" "$directory/package-lock.json" && exit 0
fi
command -v npm >/dev/null || { echo "npm is missing; tools/install-deps.sh --soak installs it" >&2; exit 1; }
cp "$source/package.json" "$source/package-lock.json" "$directory"
npm ci --prefix "$directory" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
