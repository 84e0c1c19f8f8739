#!/usr/bin/env python3
"""Measures what share of real configurations `weir import` converts.

Reads the list of files in crates/weir-import/corpus, fetches them to a directory outside of the repository (or reads
them from --dir), runs `weir import` and `weir check` on each, and puts every line in one class:

  carried     weir.toml has the same effect as the line
  irrelevant  in irrelevant.list: clients and servers do not observe it
  changed     a note reports that behavior changes

Prints the share of carried lines among the relevant lines, for each kind: the mean over the files, and over all lines.
A file that is rejected as a whole counts as 0. --held-out measures the other half of the files, drawn with split.seed.
"""

import argparse
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTS = ROOT / "crates/weir-import/corpus"
KINDS = ["haproxy", "nginx", "keepalived", "ldirectord"]
NOTE = re.compile(r"^(  )?line (\d+): (.*)$")


def main():
    arguments = parse_arguments()
    directory = pathlib.Path(arguments.dir).expanduser().resolve()
    if directory.is_relative_to(ROOT):
        sys.exit(f"{directory} is inside the repository; fetched files must not be committed: choose another --dir")
    files = select(read_list(), arguments)
    if arguments.fetch:
        fetch(files, directory)
    rules = read_rules()
    results = []
    for entry in files:
        results.append(measure(entry, directory, rules, arguments))
    report(results, arguments)
    if arguments.run:
        sys.exit(run(files, directory, arguments))
    if any(result["unchecked"] for result in results):
        sys.exit(1)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default=str(ROOT / "target/release/weir"), help="the program to measure")
    parser.add_argument("--dir", default="~/.cache/weir-corpus", help="directory of the files, as OWNER+NAME/PATH")
    parser.add_argument("--fetch", action="store_true", help="fetch missing files to --dir first")
    parser.add_argument("--held-out", action="store_true", help="measure the other half of the files")
    parser.add_argument("--kind", choices=KINDS, help="measure only one kind")
    parser.add_argument("--only", help="measure files whose path or repository contains this text")
    parser.add_argument("--run", action="store_true",
                        help="also run haproxy or nginx and Weir with each file, and compare them (needs root)")
    parser.add_argument("--program", action="append", default=[], metavar="KIND:PATH", help="see side-by-side.py")
    parser.add_argument("--modules", help="see side-by-side.py")
    parser.add_argument("--show", action="store_true", help="list the lines that are not converted")
    return parser.parse_args()


def read_list():
    """Returns (kind, repository, commit, path, sha256) for each listed file."""
    lines = (LISTS / "files.list").read_text().splitlines()
    return [tuple(line.split(" ")) for line in lines if line and not line.startswith("#")]


def select(files, arguments):
    """Returns one half of the files: for each kind, the first or second half in the order of a hash with the seed."""
    seed = (LISTS / "split.seed").read_text().strip()
    chosen = []
    for kind in KINDS:
        if arguments.kind not in (None, kind):
            continue
        kind_files = [entry for entry in files if entry[0] == kind]
        sort_key = lambda entry: hashlib.sha256(f"{seed} {entry[1]} {entry[3]}".encode()).hexdigest()
        kind_files.sort(key=sort_key)
        middle = (len(kind_files) + 1) // 2
        chosen += kind_files[middle:] if arguments.held_out else kind_files[:middle]
    if arguments.only:
        chosen = [entry for entry in chosen if arguments.only in entry[1] + "/" + entry[3]]
    return chosen


def local_path(directory, repository, path):
    return directory / repository.replace("/", "+") / path


def fetch(files, directory):
    for _, repository, commit, path, sha in files:
        target = local_path(directory, repository, path)
        if target.exists():
            continue
        url = f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                data = response.read()
        except (urllib.error.URLError, TimeoutError) as error:
            sys.exit(f"{url}: {error}; fetch the files by other means, and set DIR= to their directory")
        if hashlib.sha256(data).hexdigest() != sha:
            sys.exit(f"{url}: the file differs from the listed one")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def read_rules():
    """Returns for each kind the irrelevant directives, and the directives that make their whole block irrelevant."""
    rules = {kind: ([], []) for kind in KINDS}
    for line in (LISTS / "irrelevant.list").read_text().splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[1] == "block-with":
            rules[words[0]][1].append(words[2])
        else:
            rules[words[0]][0].append(words[1:])
    return rules


def matches(words, rule):
    if len(words) < len(rule):
        return False
    def is_match(word, pattern):
        return word.startswith(pattern[:-1]) if pattern.endswith("*") else word == pattern
    return all(is_match(word, pattern) for word, pattern in zip(words, rule))


def relevant_lines(kind, text, rules):
    """Returns the relevant lines: number and text."""
    words, blocks = rules
    lines = text.split("\n")
    excluded = covered_blocks(lines, blocks) if kind == "nginx" else set()
    if kind == "nginx":
        excluded |= continuation_lines(lines)
    lines_by_number = {}
    for number, line in enumerate(lines, 1):
        line = line.strip()
        bare = re.sub(r"^[{}\s]+", "", line)
        comment = "#!" if kind == "keepalived" else "#"
        if number in excluded or not bare or bare[0] in comment:
            continue
        split = [word.rstrip(";") for word in re.split(r"[\s=]+" if kind == "ldirectord" else r"\s+", bare)]
        if any(matches(split, rule) for rule in words):
            continue
        lines_by_number[number] = line
    return lines_by_number


def covered_blocks(lines, keywords):
    """Returns the line numbers of the innermost blocks that contain one of these directives."""
    excluded, stack = set(), []
    for number, line in enumerate(lines, 1):
        code = line.split("#")[0]
        if stack and any(re.search(rf"(^|[\s;{{]){word}[\s;]", code) for word in keywords):
            stack[-1][1] = True
        for character in code:
            if character == "{":
                stack.append([number, False])
            elif character == "}" and stack:
                start, covered = stack.pop()
                if covered:
                    excluded.update(range(start, number + 1))
    return excluded


def continuation_lines(lines):
    """Returns the numbers of lines that continue a directive: they count as part of its first line."""
    excluded, is_open = set(), False
    for number, line in enumerate(lines, 1):
        code = re.sub(r"(^|\s)#.*", "", line).strip()
        if is_open:
            excluded.add(number)
        if code:
            is_open = code[-1] not in ";{}"
    return excluded


def run(files, directory, arguments):
    """Compares the original programs with Weir, and returns the exit status."""
    command = [sys.executable, str(ROOT / "tools/side-by-side.py"), "--weir", arguments.weir]
    command += ["--show"] if arguments.show and not arguments.held_out else []
    command += [word for program in arguments.program for word in ("--program", program)]
    command += ["--modules", arguments.modules] if arguments.modules else []
    program_files = [entry for entry in files if entry[0] in ("haproxy", "nginx")]
    file_arguments = [f"{kind}:{local_path(directory, repository, path)}"
                      for kind, repository, _, path, _ in program_files]
    return subprocess.run(command + file_arguments).returncode if file_arguments else 0


def measure(entry, directory, rules, arguments):
    kind, repository, _, path, sha = entry
    file = local_path(directory, repository, path)
    name = f"{repository}/{path}"
    if not file.exists():
        sys.exit(f"{file} is missing: fetch the files with --fetch, or set DIR= to their directory")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha:
        sys.exit(f"{file} differs from the listed file")
    lines = relevant_lines(kind, data.decode("utf-8", "replace"), rules[kind])
    done = subprocess.run([arguments.weir, "import", kind, str(file), "--root", str(file.parent)],
                          capture_output=True, timeout=120)
    toml = done.stdout.decode("utf-8", "replace")
    lost = {}
    for note in done.stderr.decode("utf-8", "replace").splitlines():
        match = NOTE.match(note)
        if match and match.group(1):
            lost.setdefault(int(match.group(2)), match.group(3))
    refused = not re.search(r"^\[", toml, re.M) and bool(lines)
    changed = {number: lost[number] for number in lines if number in lost}
    share = 0.0 if refused else 1 - len(changed) / len(lines) if lines else None
    unchecked = "" if refused else check(arguments.weir, toml)
    return {"kind": kind, "name": name, "lines": lines, "changed": changed, "share": share, "refused": refused,
            "unchecked": unchecked, "error": done.stderr.decode("utf-8", "replace")}


def check(weir, toml):
    """Returns the errors of `weir check` for the output, or an empty string."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(toml)
        file.flush()
        done = subprocess.run([weir, "check", "-c", file.name], capture_output=True, timeout=120)
    return "" if done.returncode == 0 else done.stderr.decode("utf-8", "replace")


def report(results, arguments):
    half = "held-out half" if arguments.held_out else "development half"
    print(f"{'kind':12} {'files':>5} {'refused':>7} {'lines':>6} {'mean over files':>15} {'over all lines':>14}", end="")
    print(f"   ({half})")
    for kind in KINDS:
        kind_results = [result for result in results if result["kind"] == kind and result["share"] is not None]
        if not kind_results:
            continue
        shares = [result["share"] for result in kind_results]
        lines = sum(len(result["lines"]) for result in kind_results)
        lost = sum(len(result["lines"]) if result["refused"] else len(result["changed"]) for result in kind_results)
        refused = sum(result["refused"] for result in kind_results)
        mean = 100 * sum(shares) / len(shares)
        print(f"{kind:12} {len(kind_results):5} {refused:7} {lines:6} {mean:14.1f}% {100 * (1 - lost / lines):13.1f}%")
    for result in results:
        if result["unchecked"]:
            print(f"\n{result['name']}: weir check rejects the output:\n{result['unchecked'][:2000]}")
    if arguments.show and not arguments.held_out:
        show(results)


def show(results):
    for result in sorted(results, key=lambda result: (result["kind"], result["share"] or 0)):
        share = "-" if result["share"] is None else f"{100 * result['share']:.0f}%"
        print(f"\n{result['kind']} {result['name']}: {share}" + (" REFUSED" if result["refused"] else ""))
        if result["refused"]:
            print(result["error"][:600])
        for number, note in sorted(result["changed"].items()):
            print(f"  {number}: {note}")


if __name__ == "__main__":
    main()
