"""Determines which crates `weir` is built from, using `cargo metadata --locked`."""

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def find_cargo():
    """Returns the path of cargo: $CARGO, the one in PATH, or the one in rustup's default directory."""
    default = Path.home() / ".cargo/bin/cargo"
    return os.environ.get("CARGO") or shutil.which("cargo") or str(default)


def host_triple(cargo):
    """Returns the target triple of this machine."""
    text = subprocess.run([cargo, "--version", "--verbose"], check=True, capture_output=True, text=True).stdout
    return next(line.split(": ")[1] for line in text.splitlines() if line.startswith("host: "))


class Graph:
    """The dependency graph of `weir`, without dev-dependencies.

    `targets` are target triples; the default is this machine's triple.
    """

    def __init__(self, cargo, targets=()):
        command = [cargo, "metadata", "--locked", "--format-version", "1"]
        for target in targets or [host_triple(cargo)]:
            command += ["--filter-platform", target]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        metadata = json.loads(result.stdout)
        self.packages = {package["id"]: package for package in metadata["packages"]}
        self._nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        self.root = next(package["id"] for package in metadata["packages"] if package["name"] == "weir")
        self.reached, pending = {self.root}, [self.root]
        while pending:
            for package_id in self.dependencies(pending.pop()):
                if package_id not in self.reached:
                    self.reached.add(package_id)
                    pending.append(package_id)

    def dependencies(self, package_id):
        """Yields the package IDs of a crate's normal and build dependencies."""
        for dependency in self._nodes[package_id]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                yield dependency["pkg"]
