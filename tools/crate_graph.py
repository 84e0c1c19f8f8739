"""Determines the crates that the program `weir` is built from, with `cargo metadata --locked`."""

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def find_cargo():
    """Returns the cargo in $CARGO, in PATH, or in rustup's default directory."""
    default = Path.home() / ".cargo/bin/cargo"
    return os.environ.get("CARGO") or shutil.which("cargo") or str(default)


def host_of(cargo):
    """Returns the target triple of this machine."""
    text = subprocess.run([cargo, "--version", "--verbose"], check=True, capture_output=True, text=True).stdout
    return next(line.split(": ")[1] for line in text.splitlines() if line.startswith("host: "))


class Graph:
    """The packages in cargo's metadata, without those that only tests use.

    `targets` are target triples; the default is that of this machine.
    """

    def __init__(self, cargo, targets=()):
        command = [cargo, "metadata", "--locked", "--format-version", "1"]
        for target in targets or [host_of(cargo)]:
            command += ["--filter-platform", target]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        metadata = json.loads(done.stdout)
        self.packages = {package["id"]: package for package in metadata["packages"]}
        self._nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        self.root = next(package["id"] for package in metadata["packages"] if package["name"] == "weir")
        self.reached, pending = {self.root}, [self.root]
        while pending:
            for identity in self.dependencies(pending.pop()):
                if identity not in self.reached:
                    self.reached.add(identity)
                    pending.append(identity)

    def dependencies(self, identity):
        """Yields the IDs of the normal and build dependencies of a crate."""
        for dependency in self._nodes[identity]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                yield dependency["pkg"]
