#!/usr/bin/env python3
"""Prints a software bill of materials in CycloneDX 1.5: every crate that the program `weir` is built from.

    tools/build-sbom.py [CARGO] > weir.cdx.json

It reads `cargo metadata --locked`; crates that only tests use are left out.
"""

import json
import subprocess
import sys

cargo = sys.argv[1] if len(sys.argv) > 1 else "cargo"
host = next(
    line.split(": ")[1]
    for line in subprocess.run([cargo, "--version", "--verbose"], check=True, capture_output=True, text=True).stdout.splitlines()
    if line.startswith("host: ")
)
command = [cargo, "metadata", "--locked", "--format-version", "1", "--filter-platform", host]
metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
root = next(package["id"] for package in metadata["packages"] if package["name"] == "weir")


def dependencies(identity):
    """Crates that a crate is built with: normal and build dependencies."""
    for dependency in nodes[identity]["deps"]:
        if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
            yield dependency["pkg"]


reached, pending = {root}, [root]
while pending:
    for identity in dependencies(pending.pop()):
        if identity not in reached:
            reached.add(identity)
            pending.append(identity)


def reference(identity):
    package = packages[identity]
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(identity):
    package = packages[identity]
    found = {
        "type": "application" if identity == root else "library",
        "bom-ref": reference(identity),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(identity),
    }
    if package["license"]:
        # Old manifests separate alternatives by a slash.
        found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return found


order = sorted(reached - {root}, key=reference)
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": component(root)},
    "components": [component(identity) for identity in order],
    "dependencies": [
        {"ref": reference(identity), "dependsOn": sorted({reference(it) for it in dependencies(identity)})}
        for identity in [root, *order]
    ],
}
print(json.dumps(document, indent=1))
