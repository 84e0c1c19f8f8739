#!/usr/bin/env python3
"""Prints the size of a program and of its parts, as a Markdown table.

    tools/size.py [--limit MIB] PROGRAM [STRIPPED]

PROGRAM has symbols; each symbol's size is added to the feature of its crate (FEATURES below). STRIPPED is the same
program without symbols; the rest of its size (unwind tables, relocations, strings) is in the row "other".
The exit code is 1 if STRIPPED, or PROGRAM if STRIPPED is missing, is larger than the limit.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

# Each feature has a name, a pattern for its crates, and a pattern for its symbols outside any crate.
FEATURES = [
    ("BPF programs and their loader", r"weir_dataplane|aya|aya_obj|object", r"OBJECT"),
    (
        "TLS and cryptography",
        r"aws_lc\w*|rustls\w*|tokio_rustls|x509\w*|webpki\w*|md5|sha2|digest|der|const_oid|spki|pem\w*",
        r"aws_lc|^(EVP|SSL|ASN1|X509|EC|BN|RSA|CRYPTO|CBS|CBB|OPENSSL|AES|bn_|ec_|rsa_|aes|sha\d|p256|p384|p521|curve|ml_)",
    ),
    ("compression", r"brotli\w*|zstd\w*|flate2|zlib_rs|alloc_no_stdlib", r"^(ZSTD|HUF|FSE|HIST|COVER|XXH)"),
    (
        "HTTP/1, HTTP/2 and the proxy",
        r"weir_proxy|weir_http|weir_select|h2|hyper\w*|http\w*|axum\w*|tower\w*|slab|indexmap",
        None,
    ),
    ("the importers", r"weir_import", None),
    (
        "configuration and diagnostics",
        r"weir_config|weir_model|toml\w*|annotate_snippets|serde\w*|strsim|winnow|ryu|itoa|zmij",
        None,
    ),
    ("ipvsadm", r"weir_ipvsadm", None),
    (
        "schedulers, flows, planner, engine",
        r"weir_sched|weir_flow|weir_planner|weir_engine|weir_state|weir_latency|weir_abi|weir_wire",
        None,
    ),
    ("health checks and discovery", r"weir_health|weir_probing|weir_discovery|simple_dns", None),
    ("VRRP, BGP, synchronization", r"weir_vrrp\w*|weir_announce|weir_sync|weir_cluster", None),
    ("API, metrics, dashboard", r"weir_control", None),
    ("lab and attack", r"weir_lab", None),
    ("weir top", r"ratatui\w*|crossterm|unicode_\w*", None),
    (
        "doctor, protect, real-server, network",
        r"weir_(doctor|protect|real_server|netlink|sys|helper)|netlink\w*|rtnetlink|landlock|seccompiler|rustix",
        None,
    ),
    ("command line, help and man pages", r"clap\w*|roff|weir", None),
    ("regular expressions", r"regex\w*|aho_corasick|memchr", None),
    ("runtime: tokio, tracing", r"tokio\w*|mio|tracing\w*|futures\w*|bytes|socket2|sharded_slab", None),
]
LIBRARIES = "Rust and C libraries"
CRATE = re.compile(r"([A-Za-z_]\w*)::")


def sizes(program):
    """Returns the bytes of each feature: the sizes of the symbols in nm's list, counting each address once."""
    listing = subprocess.run(["nm", "-C", "--print-size", program], check=True, capture_output=True, text=True).stdout
    crates = [(name, re.compile(crates)) for name, crates, _ in FEATURES]
    functions = [(name, re.compile(pattern)) for name, _, pattern in FEATURES if pattern]
    found, seen = {}, set()
    for line in listing.splitlines():
        fields = line.split(maxsplit=3)
        if len(fields) != 4 or len(fields[1]) != 16 or fields[2] in "bBuU" or fields[0] in seen:
            continue
        seen.add(fields[0])
        # The first crate other than Rust's standard library: "<core::… as weir_http::…>" counts for weir_http.
        names = [name for name in CRATE.findall(fields[3]) if name not in ("core", "alloc", "std")]
        feature = next((part for name in names[:1] for part, pattern in crates if pattern.fullmatch(name)), None)
        feature = feature or next((part for part, pattern in functions if pattern.search(fields[3])), LIBRARIES)
        found[feature] = found.get(feature, 0) + int(fields[1], 16)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, metavar="MIB")
    parser.add_argument("program", type=Path)
    parser.add_argument("stripped", type=Path, nargs="?")
    arguments = parser.parse_args()
    found = sizes(arguments.program)
    total = (arguments.stripped or arguments.program).stat().st_size
    rows = list(found.items())
    rows.append(("other: unwind tables, relocations, strings", total - sum(found.values())))
    print("| part | MiB |\n|---|---|")
    for name, size in sorted(rows, key=lambda row: -row[1]):
        print(f"| {name} | {size / 2**20:.1f} |")
    print(f"| **all** | **{total / 2**20:.1f}** |")
    if arguments.limit and total > arguments.limit * 2**20:
        print(f"tools/size.py: larger than {arguments.limit:.0f} MiB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
