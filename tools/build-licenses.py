#!/usr/bin/env -S python3 -B
"""Prints the licenses of the libraries that the program `weir` is built from: each text once, with its crates.

    tools/build-licenses.py [CARGO [TARGET]…] > THIRD-PARTY

Most of these licenses require that copies of the program contain their text. The texts are those in the crates'
archives, including those of C code. Crates without a text, and the Rust standard library, are listed with their
license expressions.
"""

import re
import sys
from pathlib import Path

from crate_graph import Graph, find_cargo

# Files that contain a license or a notice, and the extensions of other files with such names.
NAMES = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?", re.IGNORECASE)
SOURCES = re.compile(r"\.(rs|c|h|py|html|json|toml|yml|yaml|sh|pl)$", re.IGNORECASE)
RULE = "-" * 100


def texts(directory):
    """Yields the contents of the license files of a crate."""
    for path in sorted(Path(directory).rglob("*")):
        if NAMES.fullmatch(path.name) and not SOURCES.search(path.name) and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip("\n")
            if text:
                yield text


def main():
    graph = Graph(sys.argv[1] if len(sys.argv) > 1 else find_cargo(), sys.argv[2:])
    found, crates, without_text = {}, [], []
    for identity in graph.reached:
        package = graph.packages[identity]
        if package["source"] is None:
            continue
        crate = f"{package['name']} {package['version']}"
        crates.append(f"{crate}: {package['license'] or 'see the text'}")
        crate_texts = set(texts(Path(package["manifest_path"]).parent))
        for text in crate_texts:
            found.setdefault(text, set()).add(crate)
        if not crate_texts:
            without_text.append(crate)
    print("Libraries that the program weir is built from, and their licenses.\n")
    print("Rust standard library: MIT OR Apache-2.0")
    print("\n".join(sorted(crates)))
    if without_text:
        print(f"\nWithout a license text in the archive: {', '.join(sorted(without_text))}")
    for users, text in sorted((sorted(users), text) for text, users in found.items()):
        print(f"\n{RULE}\n{', '.join(users)}\n{RULE}\n\n{text}")


main()
