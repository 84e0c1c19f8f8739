#!/usr/bin/env python3
"""Runs the benchmarks, and prints one table and JSON; or compares this build with a different commit.

    tools/bench.py [--only PART]… [--rounds N] [--json FILE]
    tools/bench.py --compare REF [--all] [--only PART]… [--rounds N] [--profile dev] [--json FILE]
    tools/bench.py --without-metrics [--all] [--only PART]… [--rounds N] [--profile dev] [--json FILE]

Without --compare, every benchmark program runs once, and its output is shown as it is produced. The table at the end
contains for each row the median, the minimum, the maximum, and the performance goal if there is one.

With --compare, the benchmarks of REF are also built, in a worktree under the target directory. For each row, both
builds run in each of N rounds, in alternating order, so that other load on the machine affects both. The table contains
both medians, both ranges, and the ratio: the median of the rounds' ratios of this build to REF, with the minimum and
the maximum. Rows are compared by name; rows that only one build has are marked. The default rows are those in ROWS
(packets and the proxy); --all also measures every row of the packet benchmark. HAProxy, whose program does not change,
is measured in the same rounds: its ratio shows how much of a difference is due to the machine.

--without-metrics compares in the same way with this tree built with WEIR_WITHOUT_METRICS=1. That build does not count
packets, bytes, reasons, or the results and durations of requests, but still counts what schedulers and limits need.
The ratios show the cost of the default metrics.

--only selects rows whose program and argument in ROWS ("packet: nat TCP, 1 flow") contain PART; only the programs of
these rows are built. Without --compare, PART is the name of a program ("routes") or a part of a row's name. N is 5 by
default. --profile dev builds without optimization, which is faster and does not affect packet rows, because these
programs run in the kernel. WEIR_BENCH_PACKETS and WEIR_BENCH_SECONDS are passed to the programs. The exit code is 1 if
a program failed or a row is missing; it does not depend on the goals.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()

# The programs in the order of a run; COMPARED contains those that can be compared.
COMPARED = ["packet", "peers", "secure", "routes"]
PROGRAMS = [*COMPARED, "scale", "checks", "connect", "sync"]

# Names that programs had in older commits.
FORMER_NAMES = {"beside": "peers"}

# Rows that are compared by default: the program, and the argument that selects the row.
ROWS = [
    ("packet", "direct TCP, 1 flow"),
    ("packet", "direct TCP, 16 K flows"),
    ("packet", "direct TCP, 1 M flows"),
    ("packet", "tunnel ipip TCP, 1 flow"),
    ("packet", "tunnel gue, checksum TCP, 1 flow"),
    ("packet", "l3dsr TCP, 1 flow"),
    ("packet", "nat TCP, 1 flow"),
    ("packet", "nat TCP replies, 1 flow"),
    ("packet", "nat TCP, 1 M flows"),
    ("packet", "direct, IPv6 TCP, 1 flow"),
    ("packet", "direct UDP, random sources"),
    ("packet", "direct, maglev SYN flood, random sources"),
    ("packet", "direct SYN, each makes an entry"),
    ("packet", "direct, wlc SYN, each makes an entry"),
    ("packet", "direct not a VIP"),
    ("packet", "pipeline"),
    ("peers", "small, keep-alive, 64 connections"),
    ("peers", "16 KB, keep-alive, 64 connections"),
    ("peers", "1 MB, keep-alive, 16 connections"),
    ("peers", "small, a connection each, 64 connections"),
    ("peers", "memory of an idle keep-alive connection"),
    ("secure", "TLS 1.3, small, keep-alive, 64 connections"),
    ("secure", "TLS 1.3, small, a handshake each, 64 connections"),
    ("secure", "HTTP/2 over TLS, small, 8 connections, 100 streams each"),
    ("routes", "1 000 routes"),
    ("routes", "1 000 regex routes"),
    ("routes", "a map of 100 000 entries"),
]

# Performance goals: the end of a row's name, and the maximum (≤) or minimum (≥) of its value.
GOALS = [
    ("direct to katran ipip, TCP, 1 flow", "≤", 0.40),
    ("tunnel ipip to katran ipip, TCP, 1 flow", "≤", 0.60),
    ("tunnel gue, checksum to katran gue, TCP, 1 flow", "≤", 0.35),
    ("direct to katran ipip, TCP, 1 M flows", "≤", 0.50),
    ("direct to katran ipip, UDP, random sources", "≤", 0.40),
    ("direct, maglev to katran ipip, SYN flood, random sources", "≤", 0.80),
    ("direct to katran ipip, not a VIP", "≤", 0.30),
    ("nat to nftables DNAT, net", "≤", 0.15),
    ("direct to nftables ingress DSR, net", "≤", 0.15),
    ("direct to nftables ingress DSR, packets of the whole pipeline", "≥", 3.5),
    ("small, keep-alive, 64 connections: weir to haproxy", "≤", 0.70),
    ("16 KB, keep-alive, 64 connections: weir to haproxy", "≤", 0.60),
    ("1 MB, keep-alive, 16 connections: weir to haproxy", "≤", 0.60),
    ("small, a connection each, 64 connections: weir to haproxy", "≤", 0.80),
    ("TLS 1.3, small, keep-alive, 64 connections: weir to haproxy", "≤", 0.60),
    ("TLS 1.3, small, a handshake each, 64 connections: weir to haproxy", "≤", 0.75),
    ("1 000 routes: weir to haproxy", "≤", 0.75),
    ("1 000 routes: weir to nginx", "≤", 0.75),
    ("1 000 regex routes: weir to haproxy", "≤", 0.75),
    ("1 000 regex routes: weir to nginx", "≤", 0.75),
    ("a map of 100 000 entries: weir to haproxy", "≤", 0.75),
    ("a map of 100 000 entries: weir to nginx", "≤", 0.75),
    ("memory of an idle keep-alive connection: weir", "≤", 1024),
    ("sender CPU per flow", "≤", 1.5),
    ("receiver CPU per flow", "≤", 1.5),
    ("flows missing after the failure", "≤", 20),
]

NUMBER = r"(-?\d+(?:\.\d+)?)"
RATIO = re.compile(rf"^(?P<name>\S.*): {NUMBER} (?P<unit>us |ms |)\({NUMBER}…{NUMBER}\)")
HEADING = re.compile(r"^(?P<name>\S.*): CPU per request, and to (?P<peer>\S+) in the same round$")
CANDIDATE = re.compile(rf"^  (?P<program>\S+) +{NUMBER} us +{NUMBER}$")
IDLE = re.compile(rf"^(?P<name>memory of an idle .*?): (?P<program>\S+) +{NUMBER} (?:octets|bytes),")
CALL = re.compile(rf"^  (?P<name>\S.*?) +{NUMBER} ns +{NUMBER} ns +\S+ ns, {NUMBER} x$")
SPAN = re.compile(rf"^{NUMBER}…{NUMBER}$")


class Value:
    """The value of a row: its unit, the median of a run, and the range that the run reports."""

    def __init__(self, unit, median, least=None, most=None):
        self.unit = unit
        self.median = float(median)
        self.least = self.median if least is None else float(least)
        self.most = self.median if most is None else float(most)


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table_row(heads, cells):
    """Returns the name and value of a row of a Markdown table, or None if the row has no value to compare."""
    row = dict(zip(heads, cells))
    if "net" in row and "packets" in row:
        name, value, unit = f"{row['forward']}, {row['packets']}", row["net"], "ns"
    elif "director" in row:
        name, value, unit = f"pipeline: {row['director']}, {row['packets']}", row["ns"], "ns"
    elif "map" in row:
        name, value, unit = f"memory: {row['map']}", row["MiB"], "MiB"
    elif "what" in row and "ms" in row:
        name, value, unit = f"10 000 services: {row['what']}", row["ms"], "ms"
    else:
        return None
    span = SPAN.match(row.get("least…most", ""))
    try:
        return name, Value(unit, value, *(span.groups() if span else ()))
    except ValueError:
        return None


def parse(text):
    """Returns the rows of a program's output, by name, in order.

    >>> output = '''
    ... | forward | packets | floor | net | least…most | hits |
    ... | --- | --- | --- | --- | --- | --- |
    ... | direct, wlc | TCP, 1 flow | 30 | 31 | 29…33 | 100.0 % |
    ... | tunnel gue | TCP, 1 flow |  | not built |  |  |
    ...
    ... direct to katran ipip, TCP, 1 flow: 0.40 (0.17…0.50) (goal: ≤ 0.5, met)
    ... | director | packets | Mpps | ns | least…most | net ns |
    ... | --- | --- | --- | --- | --- | --- |
    ... | weir nat, xdp | both ways | 1.64 | 610 | 565…687 | 321 |
    ... small, keep-alive, 64 connections: CPU per request, and to haproxy in the same round
    ...   haproxy    12.34 us   1.00
    ...   nginx      18.20 us   1.47
    ...   weir        9.10 us   0.74
    ... memory of an idle keep-alive connection: weir     531 bytes, with 5000 of them
    ... | what | ms | least…most | CPU ms | goal | |
    ... | --- | --- | --- | --- | --- | --- |
    ... | weight change through the API | 0.27 | 0.23…16 | 0.27 | < 10 | met |
    ... sync, nat, sender CPU per flow: 0.91 us (0.88…1.02) (goal: ≤ 1.5, met)
    ... '''
    >>> for name, value in parse(output).items():
    ...     print(f"{name} | {value.unit} {value.median} {value.least} {value.most}")
    direct, wlc, TCP, 1 flow | ns 31.0 29.0 33.0
    direct to katran ipip, TCP, 1 flow | × 0.4 0.17 0.5
    pipeline: weir nat, xdp, both ways | ns 610.0 565.0 687.0
    small, keep-alive, 64 connections: haproxy | us 12.34 12.34 12.34
    small, keep-alive, 64 connections: nginx | us 18.2 18.2 18.2
    small, keep-alive, 64 connections: nginx to haproxy | × 1.47 1.47 1.47
    small, keep-alive, 64 connections: weir | us 9.1 9.1 9.1
    small, keep-alive, 64 connections: weir to haproxy | × 0.74 0.74 0.74
    small, keep-alive, 64 connections: weir to nginx | × 0.5 0.5 0.5
    memory of an idle keep-alive connection: weir | bytes 531.0 531.0 531.0
    10 000 services: weight change through the API | ms 0.27 0.23 16.0
    sync, nat, sender CPU per flow | us 0.91 0.88 1.02
    """
    rows, heads, heading = {}, None, None
    for line in text.splitlines():
        if line.startswith("|"):
            cells = cells_of(line)
            if heads is None:
                heads = cells
            elif set("".join(cells)) != {"-"}:
                named = table_row(heads, cells)
                if named:
                    rows[named[0]] = named[1]
            continue
        heads = None
        if match := HEADING.match(line):
            heading = match
        elif heading and (match := CANDIDATE.match(line)):
            name, peer, program = heading["name"], heading["peer"], match["program"]
            rows[f"{name}: {program}"] = Value("us", match[2])
            if program != peer:
                rows[f"{name}: {program} to {peer}"] = Value("×", match[3])
            nginx = rows.get(f"{name}: nginx")
            if program == "weir" and nginx and peer != "nginx":
                rows[f"{name}: weir to nginx"] = Value("×", float(match[2]) / nginx.median)
        elif match := IDLE.match(line):
            rows[f"{match['name']}: {match['program']}"] = Value("bytes", match[3])
        elif match := CALL.match(line):
            rows[f"{match['name']}, through the VIP"] = Value("×", match[4])
        elif match := RATIO.match(line):
            _, median, unit, least, most = match.groups()
            rows[match["name"]] = Value(unit.strip() or "×", median, least, most)
    return rows


def build(tree, programs, profile=None, copy_directory=None, settings=None):
    """Builds the benchmarks of a tree; returns their executables by current name. A tree may lack some of them.

    Both trees use the same target directory, so that third-party libraries are built once. Their executables have the
    same names there and are therefore copied to the directory `copy_directory`.
    """
    command = [CARGO, "metadata", "--locked", "--format-version", "1", "--no-deps"]
    metadata = json.loads(subprocess.run(command, cwd=tree, check=True, capture_output=True).stdout)
    arguments = []
    for package in metadata["packages"]:
        names = [t["name"] for t in package["targets"] if "bench" in t["kind"]]
        selected_names = [name for name in names if FORMER_NAMES.get(name, name) in programs]
        if selected_names:
            arguments += ["-p", package["name"], *(a for name in selected_names for a in ("--bench", name))]
    command = [CARGO, "bench", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
    command += [*(["--profile", profile] if profile else []), *arguments]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(TARGET), **(settings or {}))
    built = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit(f"tools/bench.py: the benchmarks of {tree} do not build")
    found = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and "bench" in message["target"]["kind"]:
            executable = Path(message["executable"])
            name = FORMER_NAMES.get(message["target"]["name"], message["target"]["name"])
            if copy_directory:
                copy_directory.mkdir(parents=True, exist_ok=True)
                executable = Path(shutil.copy2(executable, copy_directory / name))
            found[name] = executable
    return found


def commit_of(ref):
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(f"tools/bench.py: {ref} is not a commit of this repository")
    return found.stdout.strip()


def worktree(commit):
    """Creates a checkout of the commit under the target directory, unless it exists; returns its path."""
    tree = TARGET / "compare" / commit[:12]
    if not (tree / "Cargo.toml").exists():
        subprocess.run(["git", "-C", str(ROOT), "worktree", "prune"], check=True)
        command = ["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(tree), commit]
        subprocess.run(command, check=True)
    return tree


def run(program, argument, rounds, show=False):
    """Runs a benchmark program with an argument; returns its rows, and whether it failed."""
    command = [program, "--bench", *([argument] if argument else [])]
    environment = dict(os.environ, WEIR_BENCH_ROUNDS=str(rounds))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    child = subprocess.Popen(command, env=environment, cwd=ROOT, text=True, **pipes)
    lines = []
    for line in child.stdout:
        lines.append(line)
        if show:
            sys.stdout.write(line)
            sys.stdout.flush()
    failed = child.wait() != 0
    if failed and not show:
        sys.stderr.write("".join(lines[-10:]))
    return parse("".join(lines)), failed


def summary(values):
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "least": ordered[0], "most": ordered[-1], "runs": len(ordered)}


def number(value):
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(numbers):
    if numbers is None:
        return "–"
    return f"{number(numbers['median'])} ({number(numbers['least'])}…{number(numbers['most'])})"


def goal_of(name, median):
    for part, sign, goal in GOALS:
        if part == name:
            met = median <= goal if sign == "≤" else median >= goal
            return {"sign": sign, "goal": goal, "met": met}
    return None


def format_goal(goal):
    return f"{goal['sign']} {goal['goal']}, {'met' if goal['met'] else 'NOT met'}" if goal else ""


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    return {"cpu": model, "cpus": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0]}


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    print(f"\nJSON: {path}")


def run_once(arguments):
    selected_names = [name for name in PROGRAMS if name in arguments.only] or PROGRAMS
    parts = [part for part in arguments.only if part not in selected_names]
    programs = build(ROOT, selected_names, arguments.profile)
    rows, failed = {}, []
    for name in selected_names:
        if name not in programs:
            continue
        argument = parts[0] if len(parts) == 1 else None
        print(f"\n--- {name} ---", flush=True)
        # The proxy's programs report no range of values, so each round is a separate run.
        times = arguments.rounds if name in ("peers", "secure", "routes") else 1
        samples = {}
        for _ in range(times):
            found, has_failed = run(programs[name], argument, arguments.rounds if times == 1 else 1, show=True)
            for row, value in found.items():
                samples.setdefault(row, []).append(value)
            if has_failed:
                failed.append(name)
                break
        for row, values in samples.items():
            if parts and not any(part in row for part in parts):
                continue
            numbers = summary([value.median for value in values])
            if len(values) == 1:
                numbers.update(least=values[0].least, most=values[0].most)
            rows[row] = {"program": name, "unit": values[0].unit, **numbers, "goal": goal_of(row, numbers["median"])}
    print("\n| row | unit | median (least…most) | goal |\n| --- | --- | --- | --- |")
    for name, row in rows.items():
        print(f"| {name} | {row['unit']} | {spread(row)} | {format_goal(row['goal'])} |")
    write(arguments.json, {"machine": machine(), "commit": git("rev-parse", "HEAD"), "failed": failed, "rows": rows})
    for name in failed:
        print(f"FAILED: {name}")
    return 1 if failed or not rows else 0


def selected(rows, arguments):
    return [row for row in rows if not arguments.only or any(part in f"{row[0]}: {row[1]}" for part in arguments.only)]


def rows_to_compare(arguments, programs):
    """Returns the program and the argument of each row to compare."""
    rows = list(ROWS)
    if arguments.all:
        found, _ = run(programs["packet"], None, 1)
        default_arguments = {argument.replace(",", "") for _, argument in rows}
        for name, value in found.items():
            # The argument for the row "direct, wlc, TCP, 1 flow" is "direct, wlc TCP, 1 flow".
            label = re.search(r", (TCP|UDP|SYN|ACK|not a VIP)", name)
            if value.unit == "ns" and label and not name.startswith("pipeline"):
                argument = name[: label.start()] + " " + name[label.start() + 2 :]
                if argument.replace(",", "") not in default_arguments:
                    rows.append(("packet", argument))
    return selected(rows, arguments)


def compare(arguments):
    needed = {program for program, _ in selected(ROWS, arguments)} | ({"packet"} if arguments.all else set())
    # This tree is built last, so that the target directory contains its crates for the next build.
    if arguments.without_metrics:
        commit = reference = "without metrics"
        settings = {"WEIR_WITHOUT_METRICS": "1"}
        copy_directory = TARGET / "compare/programs/without-metrics"
        reference_programs = build(ROOT, needed, arguments.profile, copy_directory, settings)
    else:
        commit = commit_of(arguments.compare)
        reference = f"{arguments.compare} ({commit[:12]})"
        copy_directory = TARGET / "compare/programs" / commit[:12]
        reference_programs = build(worktree(commit), needed, arguments.profile, copy_directory)
    this_programs = build(ROOT, needed, arguments.profile, TARGET / "compare/programs/this")
    head = git("rev-parse", "HEAD")[:12] + ("+" if git("status", "--porcelain", "-uno") else "")
    print(f"\nthis build ({head}) and {reference}, {arguments.rounds} rounds in alternating order\n")
    print(f"| row | unit | this build | {reference} | ratio |\n| --- | --- | --- | --- | --- |", flush=True)
    rows, failed = {}, 0
    for program, argument in rows_to_compare(arguments, this_programs):
        samples = [{}, {}]
        start_time = time.monotonic()
        for turn in range(arguments.rounds):
            order = [0, 1] if turn % 2 == 0 else [1, 0]
            for side in order:
                executable = (this_programs, reference_programs)[side].get(program)
                if executable is None:
                    continue
                found, has_failed = run(executable, argument, 1)
                failed += has_failed
                for row, value in found.items():
                    samples[side].setdefault(row, []).append(value)
            if not samples[0] and not samples[1]:
                break
        for name in dict.fromkeys([*samples[0], *samples[1]]):
            if name in rows:
                continue
            values = [side.get(name) for side in samples]
            unit = (values[0] or values[1])[0].unit
            medians = [[value.median for value in side] if side else None for side in values]
            row = {"program": program, "unit": unit, "seconds": round(time.monotonic() - start_time)}
            row["this"], row["reference"] = [summary(side) if side else None for side in medians]
            row["ratio"] = None
            if all(medians):
                pairs = [a / b for a, b in zip(*medians) if b > 0]
                row["ratio"] = summary(pairs) if pairs else None
            rows[name] = row
            only = "this build" if medians[0] else reference
            ratio = spread(row["ratio"]) if all(medians) else f"only in {only}"
            print(f"| {name} | {unit} | {spread(row['this'])} | {spread(row['reference'])} | {ratio} |", flush=True)
        if not samples[0] and not samples[1]:
            print(f"| {argument} | | in neither | | |", flush=True)
            failed += 1
    document = {"machine": machine(), "commit": head, "reference": commit, "rounds": arguments.rounds, "rows": rows}
    write(arguments.json, document)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", metavar="REF")
    parser.add_argument("--without-metrics", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("WEIR_BENCH_ROUNDS", "5")))
    parser.add_argument("--profile", metavar="NAME")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    is_comparison = arguments.compare or arguments.without_metrics
    if arguments.compare and arguments.without_metrics:
        parser.error("--compare and --without-metrics are mutually exclusive")
    if arguments.all and not is_comparison:
        parser.error("--all requires --compare or --without-metrics")
    name = "compare.json" if is_comparison else "bench.json"
    arguments.json = arguments.json or TARGET / "bench" / name
    return compare(arguments) if is_comparison else run_once(arguments)


if __name__ == "__main__":
    sys.exit(main())
