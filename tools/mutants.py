#!/usr/bin/env python3
"""Changes pure crates at random positions and runs their tests. A change that no test detects is a survivor.

    tools/mutants.py [--seed N] [--count N] [--jobs N] [--again] [--keep] [CRATE…]

Default: a new seed, 300 mutants per crate, as many jobs as CPUs, all pure crates. --again tests the survivors of the
last run. --keep keeps the copy of the sources and the build for the next run with --keep.

Exits with 1 if fewer than 95 % of a crate's mutants are caught (90 % in weir-select). Survivors that cannot or need
not be caught are in tools/mutants/accepted.txt with a reason, and count as caught. Mutants that do not compile are not
counted. Prints the seed: the same seed selects the same mutants of the same sources. The names of the mutants
are in target/mutants/CRATE, in one file per result.

cargo-mutants lists the mutants. All mutants of a crate are compiled at once, each with a switch that an environment
variable turns on, and the tests run once per mutant:

    a + b    becomes    (if crate::__mutant(7) { a - b } else { a + b })

Mutants without a switch, for example in constants, are compiled one by one. All files are written below the target
directory. cargo-mutants and the parser tree-sitter are installed there if they are missing.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import site
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The source tree is not changed.
sys.dont_write_bytecode = True
from mutant_switch import Switches, write

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
WORK = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "mutants"
ACCEPTED = ROOT / "tools/mutants/accepted.txt"
CARGO_MUTANTS_VERSION = "27.1.0"
PARSER_PACKAGES = ["tree-sitter==0.26.1", "tree-sitter-rust==0.24.2"]

# The lowest share of caught mutants, in percent, and the crates with a different one.
SHARE_MIN = 95
SHARES_MIN = {"weir-select": 90}
# The reference model is compared with the data plane packet by packet, by tests of weir-dataplane that need root.
EXCLUDED = "crates/weir-flow/src/model/"

# A test program that uses five times the CPU time of the original, and ten seconds more, counts as endless. Unlike
# elapsed time, CPU time does not depend on other load on the machine. The limit for elapsed time ends programs that
# wait forever.
CPU_SECONDS, CPU_FACTOR, WAIT_SECONDS = 10, 5, 300
MEMORY = 4 << 30
# Evaluating a changed constant may not terminate.
BUILD_SECONDS = 1800
# While one thread runs a long test, a short test can fail, which ends the program.
TEST_THREADS = 2

# Simulations run fewer seeds, and property tests fewer cases. Without optimization, a simulation takes a minute.
# A failure of one mutant must not be stored, because other mutants would repeat it.
SETTINGS = {
    "WEIR_RUNS": "300",
    "PROPTEST_CASES": "32",
    "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
    "INSTA_UPDATE": "no",
    "CARGO_INCREMENTAL": "1",
    "CARGO_PROFILE_DEV_DEBUG": "false",
    "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
    "RUSTFLAGS": os.environ.get("RUSTFLAGS", "") + " --cap-lints allow",
    "RUST_BACKTRACE": "0",
}


class RunError(Exception):
    """The tests of a crate cannot be built or run."""


def sample(listed, crate, seed, count):
    """Selects mutants of a crate; the same seed selects the same ones, in any order of the list.

    >>> listed = [{"name": f"x.rs:{n}: a", "package": "a", "file": "x.rs"} for n in range(9)]
    >>> model = [{"name": "m", "package": "a", "file": EXCLUDED + "m"}, {"name": "b", "package": "b", "file": "b"}]
    >>> [mutant["name"] for mutant in sample(listed + model, "a", 1, 3)[0]]
    ['x.rs:5: a', 'x.rs:8: a', 'x.rs:6: a']
    >>> sample(listed, "a", 1, 3) == sample(listed[::-1], "a", 1, 3), len(sample(listed + model, "a", 1, 99)[0])
    (True, 9)
    """
    by_name = {m["name"]: m for m in listed if m["package"] == crate and not m["file"].startswith(EXCLUDED)}
    names = sorted(by_name)
    drawn = random.Random(f"{seed} {crate}").sample(names, min(count, len(names)))
    return [by_name[name] for name in drawn], by_name


def read_accepted(text):
    """Returns the reasons of accepted survivors by name without line and column.

    >>> read_accepted("# comment\\n\\na.rs: delete ! in f -- same -- result\\n")
    {'a.rs: delete ! in f': 'same -- result'}
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {name: reason for name, _, reason in (line.partition(" -- ") for line in lines)}


def summarize_results(results, accepted):
    """Returns the number of caught mutants, the total, accepted survivors with reasons, and the other survivors.

    A change to the file moves lines and columns; the rest of a name does not change.

    >>> results = [("a.rs:1:2: x", "caught"), ("a.rs:3:4: x", "timeout"), ("a.rs:5:6: y", "missed"),
    ...            ("a.rs:7:8: z", "missed"), ("a.rs:9:9: x", "unviable")]
    >>> summarize_results(results, {"a.rs: y": "why"})
    (3, 4, [('a.rs:5:6: y', 'why')], ['a.rs:7:8: z'])
    """
    reasons = {name: accepted.get(re.sub(r":\d+:\d+: ", ": ", name)) for name, result in results if result == "missed"}
    survivors = [name for name, reason in reasons.items() if reason is None]
    caught = sum(result in ("caught", "timeout") for _, result in results) + len(reasons) - len(survivors)
    explained = [(name, reason) for name, reason in reasons.items() if reason is not None]
    return caught, caught + len(survivors), explained, survivors


def execute(command, directory, environment, seconds, stop=None, keep=None):
    """Runs a program, and ends it with its children after a number of seconds or a line that ends with `stop`.

    Returns its exit code, or None if it timed out, and the last `keep` lines of its output.

    >>> execute(["sh", "-c", "echo a; echo b; exit 3"], "/", {}, 9, keep=1), execute(["sleep", "9"], "/", {}, 0.1)
    ((3, ['b']), (None, []))
    >>> execute(["sh", "-c", "echo test x ... FAILED; sleep 9"], "/", {}, 9, stop="FAILED")
    (1, ['test x ... FAILED'])
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    child = subprocess.Popen(
        command, cwd=directory, env=environment, start_new_session=True, text=True, errors="replace", **pipes
    )
    lines, is_over, is_stopped = deque(maxlen=keep), threading.Event(), False
    timer = threading.Timer(seconds, lambda: (is_over.set(), kill_group(child.pid)))
    timer.start()
    try:
        for line in child.stdout:
            lines.append(line.rstrip("\n"))
            if stop and lines[-1].endswith(stop):
                is_stopped = True
                kill_group(child.pid)
                break
        # The number of the group is not reused before the program is reaped.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    finally:
        timer.cancel()
        timer.join()
        kill_group(child.pid)
        child.wait()
        child.stdout.close()
    return None if is_over.is_set() else 1 if is_stopped else child.returncode, list(lines)


def kill_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Run:
    """The tests of a crate in a copy of the sources."""

    def __init__(self, crate, tree, environment):
        self.crate, self.tree, self.environment = crate, tree, environment
        # The limit of CPU time for each test program, the fastest first.
        self.limits = {}

    def list_mutants(self):
        command = [CARGO, "mutants", "--package", self.crate, "--list", "--json"]
        listed = subprocess.run(command, cwd=self.tree, env=self.environment, check=True, stdout=subprocess.PIPE)
        return json.loads(listed.stdout)

    def cargo(self, *command):
        """Builds the tests; returns the test programs, or None and the errors."""
        command = [CARGO, *command, "--tests", "--locked", "-p", self.crate, "--message-format=json"]
        code, lines = execute(command, self.tree, self.environment, BUILD_SECONDS)
        messages = [json.loads(line) for line in lines if line.startswith("{")]
        if code == 0:
            return [m["executable"] for m in messages if m.get("executable") and m["profile"]["test"]], []
        errors = [m["message"] for m in messages if m["reason"] == "compiler-message"]
        errors = [error for error in errors if error["level"] == "error" and error["spans"]]
        if not errors and code is not None:
            raise RunError("the tests do not build:\n" + "\n".join(line for line in lines if not line.startswith("{")))
        return None, errors

    def build(self, switches):
        """Builds the test programs with all switches; mutants that cause errors lose theirs."""
        command = ["check"]
        while True:
            switches.write()
            programs, errors = self.cargo(*command)
            if programs is not None and command != ["check"]:
                return programs
            if programs is not None:
                command = ["test", "--no-run"]
            elif not switches.remove_causes(errors):
                raise RunError("the tests do not build:\n" + "\n".join(error["rendered"] for error in errors[:5]))

    def run_program(self, program, number, seconds, stop=None):
        """Runs a test program with a mutant switched on; see `execute`."""
        directory = self.tree / "crates" / self.crate
        limits = ["prlimit", f"--cpu={seconds}", f"--as={MEMORY}", "--core=0", "--"]
        environment = dict(self.environment, WEIR_MUTANT=str(number), CARGO_MANIFEST_DIR=str(directory))
        environment.update(CARGO_PKG_NAME=self.crate, INSTA_WORKSPACE_ROOT=str(self.tree))
        command = [*limits, program, f"--test-threads={TEST_THREADS}"]
        return execute(command, directory, environment, WAIT_SECONDS + seconds, stop, 200)

    def measure(self, programs):
        """Runs the tests of the original, and sets the limits."""
        for program in programs:
            start_time = cpu_seconds()
            code, lines = self.run_program(program, 0, BUILD_SECONDS)
            if code != 0:
                raise RunError("the tests of the original fail:\n" + "\n".join(lines))
            self.limits[program] = CPU_SECONDS + int(CPU_FACTOR * (cpu_seconds() - start_time))
        self.limits = dict(sorted(self.limits.items(), key=lambda item: item[1]))

    def judge(self, number=0):
        """Runs the test programs until a test fails; returns the result of the mutant."""
        for program, seconds in self.limits.items():
            code, _ = self.run_program(program, number, seconds, " ... FAILED")
            if code != 0:
                # The kernel kills a program that exceeds its CPU time limit.
                return "timeout" if code in (None, -signal.SIGKILL, -signal.SIGXCPU) else "caught"
        return "missed"

    def test(self, switches, jobs):
        """Tests all mutants; returns the number of those that were compiled alone."""
        self.measure(self.build(switches))
        mutants = switches.switched()
        executor = ThreadPoolExecutor(jobs)
        try:
            for mutant, result in zip(mutants, executor.map(self.judge, [mutant.number for mutant in mutants])):
                mutant.result = result
        finally:
            executor.shutdown(cancel_futures=True)
        alone = [mutant for mutant in switches.mutants if mutant.result is None]
        for mutant in alone:
            switches.write_alone(mutant)
            programs, _ = self.cargo("test", "--no-run")
            if programs is not None and set(programs) != set(self.limits):
                raise RunError(f"the test programs have different names after a change: {programs}")
            mutant.result = "unviable" if programs is None else self.judge()
        return len(alone)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def copy_sources(tree):
    """Copies the files that git tracks or does not ignore, as they are in the work tree."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    listed = {path for path in listed.split("\0") if (ROOT / path).is_file()}
    for path in tree.rglob("*"):
        if path.is_file() and str(path.relative_to(tree)) not in listed:
            path.unlink()
    for path in listed:
        write(tree / path, (ROOT / path).read_bytes())
        shutil.copymode(ROOT / path, tree / path)


def install_lister():
    """Returns a PATH with cargo-mutants; installs it if it is missing."""
    path = f"{WORK / 'bin'}:{os.environ['PATH']}"
    if not shutil.which("cargo-mutants", path=path):
        command = [CARGO, "install", "--locked", "--root", str(WORK)]
        command += ["--version", CARGO_MUTANTS_VERSION, "cargo-mutants"]
        subprocess.run(command, check=True)
    return path


def load_parser():
    """Returns a Rust parser; installs it if it is missing."""
    directory = WORK / "venv"
    packages = directory / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    if not (packages / "tree_sitter_rust").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
        subprocess.run([str(directory / "bin/pip"), "install", "--quiet", *PARSER_PACKAGES], check=True)
    site.addsitedir(str(packages))
    # The self-test of this file (make check) does not need the parser.
    import tree_sitter
    import tree_sitter_rust

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))


def select(run, arguments):
    """Returns the mutants to test, and the number of all mutants of the crate."""
    drawn, by_name = sample(run.list_mutants(), run.crate, arguments.seed, arguments.count)
    if arguments.again:
        names = (WORK / run.crate / "missed.txt").read_text().splitlines()
        drawn = [by_name[name] for name in names if name in by_name]
    return drawn, len(by_name)


def test_crate(run, parser, arguments):
    """Tests a crate; returns whether enough of its mutants are caught."""
    start_time, crate = time.monotonic(), run.crate
    drawn, total_mutants = select(run, arguments)
    print(f"{crate}: {len(drawn)} of {total_mutants} mutants", flush=True)
    if not drawn:
        return True
    switches = Switches(crate, run.tree, parser, drawn)
    try:
        alone = run.test(switches, arguments.jobs)
    finally:
        switches.restore()
    results = [(mutant.name, mutant.result) for mutant in switches.mutants]
    (WORK / crate).mkdir(exist_ok=True)
    for kind in ("caught", "missed", "timeout", "unviable"):
        names = [name for name, result in results if result == kind]
        (WORK / crate / f"{kind}.txt").write_text("".join(f"{name}\n" for name in names))
    caught, total, explained, survivors = summarize_results(results, read_accepted(ACCEPTED.read_text()))
    for name, reason in explained:
        print(f"  accepted: {name} -- {reason}")
    for name in survivors:
        print(f"  SURVIVED: {name}")
    share, share_min = 100 * caught / max(total, 1), SHARES_MIN.get(crate, SHARE_MIN)
    timeouts, minutes = sum(result == "timeout" for _, result in results), (time.monotonic() - start_time) / 60
    notes = f"{timeouts} timeouts, {len(results) - total} do not compile, {alone} compiled alone, {minutes:.1f} minutes"
    print(f"{crate}: {caught} of {total} caught, {share:.1f} % ({notes})", flush=True)
    if share < share_min:
        print(f"{crate}: fewer than {share_min} % caught; see {WORK / crate}", file=sys.stderr)
    return share >= share_min


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("crates", nargs="*", metavar="CRATE")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    # The pure crates have a clippy.toml with their rules.
    crates = arguments.crates or sorted(path.parent.name for path in ROOT.glob("crates/*/clippy.toml"))
    # Exit on SIGTERM through the `finally` clause below, which removes the files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = WORK / ("kept" if arguments.keep else f"run.{os.getpid()}")
    tree = directory / "tree"
    environment = dict(os.environ, **SETTINGS, PATH=install_lister(), CARGO_TARGET_DIR=str(directory / "build"))
    parser = load_parser()
    repeat = f"--seed {arguments.seed} --count {arguments.count} {' '.join(crates)}"
    print(f"seed {arguments.seed}: tools/mutants.py {repeat}", flush=True)
    failed = False
    try:
        copy_sources(tree)
        for crate in crates:
            try:
                failed |= not test_crate(Run(crate, tree, environment), parser, arguments)
            except (RunError, OSError, subprocess.CalledProcessError) as error:
                print(f"{crate}: the run failed: {error}", file=sys.stderr)
                failed = True
    finally:
        if not arguments.keep:
            shutil.rmtree(directory, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
