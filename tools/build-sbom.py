#!/usr/bin/env -S python3 -B
"""Prints a software bill of materials in CycloneDX 1.5: every crate that the program `weir` is built from.

    tools/build-sbom.py [CARGO [TARGET]…] > weir.cdx.json

It reads `cargo metadata --locked` for the target triples (default: that of this machine), and omits crates that only
tests use. The hash of a crate is that of its archive, from Cargo.lock.
"""

import json
import sys
import tomllib

from crate_graph import ROOT, Graph, find_cargo

graph = Graph(sys.argv[1] if len(sys.argv) > 1 else find_cargo(), sys.argv[2:])
lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
checksums = {(it["name"], it["version"]): it["checksum"] for it in lock["package"] if "checksum" in it}


def reference(identity):
    package = graph.packages[identity]
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(identity):
    package = graph.packages[identity]
    found = {
        "type": "application" if identity == graph.root else "library",
        "bom-ref": reference(identity),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(identity),
    }
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["license"]:
        # Old manifests separate alternative licenses with a slash.
        found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return found


order = sorted(graph.reached - {graph.root}, key=reference)
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": component(graph.root)},
    "components": [component(identity) for identity in order],
    "dependencies": [
        {"ref": reference(identity), "dependsOn": sorted({reference(it) for it in graph.dependencies(identity)})}
        for identity in [graph.root, *order]
    ],
}
print(json.dumps(document, indent=1))
