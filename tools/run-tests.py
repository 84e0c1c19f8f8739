#!/usr/bin/env python3
"""Runs the workspace's tests, several test programs at a time, and prints the output of each as a whole.

    tools/run-tests.py [--jobs N] [--only NAME]… [--limit SECONDS] [-- ARGUMENT…]

Most end-to-end tests wait for timers and use a fifth of a CPU, so `cargo test`, which runs one program after another,
leaves the machine idle. This script builds everything as `cargo test` does, runs N programs at a time (default: the
number of CPUs), the longest first, then the programs in ALONE one after another, then the documentation tests.
Arguments after `--` are passed to every program. All programs run even if one fails; then the exit code is 1. A program
that takes longer than --limit seconds is killed and counts as failed; its output shows the test that hung. The script
ends with a table of each program's time, and the CPU time of those of its processes that were waited for.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")

# Programs that compare latencies or shares of a CPU or a link: running other programs at the same time would change the
# results.
ALONE = [
    "weir/proxy",
    "weir/lab",
    "weir/attack",
    "weir/lab_fail",
    "weir/failover",
    "weir/hostile",
    "weir/operations",
    "weir/passive",
    "weir/doctor",
    "weir-lab/namespace",
]

# These programs take longest, so they start first.
FIRST = [
    "weir-dataplane/packet",
    "weir-dataplane/killed",
    "weir/traffic",
    "weir-engine/engine",
    "weir/resize",
    "weir-dataplane/slow_path_encap",
    "weir-dataplane/slow_path_fragment",
    "weir/egress",
    "weir/diagnostics",
    "weir/offload",
    "weir/removal",
    "weir/path_check",
]


class Program:
    """A test program that cargo built."""

    def __init__(self, message):
        target = message["target"]
        self.path = message["executable"]
        self.directory = Path(message["manifest_path"]).parent
        self.package = self.directory.name
        self.name = f"{self.package}/{target['name']}"
        source = Path(target["src_path"]).relative_to(self.directory)
        unit = "" if "test" in target["kind"] else "unittests "
        self.title = f"{unit}{self.package}/{source}"
        self.is_alone = self.name in ALONE and "test" in target["kind"]

    def order(self):
        return FIRST.index(self.name) if self.name in FIRST else len(FIRST)


def build(arguments):
    """Builds all test programs and returns them in cargo's order."""
    command = [CARGO, "test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(result.returncode)
    programs = []
    for line in result.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        is_program = message.get("reason") == "compiler-artifact" and message.get("executable")
        if is_program and message["profile"]["test"]:
            programs.append(Program(message))
    if arguments.only:
        programs = [program for program in programs if any(name in program.name for name in arguments.only)]
    return programs


def environment(program):
    """Returns the environment, with cargo's variables that tests read."""
    return {**os.environ, "CARGO": CARGO, "CARGO_MANIFEST_DIR": str(program.directory)}


class RunningProgram:
    """A started program, whose output goes to a file until it ends."""

    def __init__(self, program, arguments, limit):
        self.program = program
        self.limit = limit
        self.output = tempfile.TemporaryFile()
        self.start_time = time.monotonic()
        self.child = subprocess.Popen(
            [program.path, *arguments],
            cwd=program.directory,
            env=environment(program),
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )
        self.killer = threading.Timer(limit, os.kill, (self.child.pid, signal.SIGKILL))
        self.killer.start()

    def finish(self, status, usage):
        """Prints the output; returns name, seconds, CPU seconds, and whether the program passed."""
        self.killer.cancel()
        self.child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - self.start_time
        print(f"     Running {self.program.title} ({os.path.relpath(self.program.path, ROOT)})", flush=True)
        self.output.seek(0)
        sys.stdout.buffer.write(self.output.read())
        self.output.close()
        code = self.child.returncode
        if code != 0:
            cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            if seconds >= self.limit:
                cause = f"killed after {self.limit} s"
            print(f"error: {self.program.name} failed ({cause})\n")
        sys.stdout.flush()
        return (self.program.name, seconds, usage.ru_utime + usage.ru_stime, code == 0)


def run(programs, jobs, arguments, limit):
    """Runs the programs, `jobs` at a time; returns the results in the order in which they ended."""
    waiting, running, results = list(programs), {}, []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                started = RunningProgram(waiting.pop(0), arguments, limit)
                running[started.child.pid] = started
            pid, status, usage = os.wait4(-1, 0)
            if pid in running:
                results.append(running.pop(pid).finish(status, usage))
    finally:
        for started in running.values():
            started.killer.cancel()
            started.child.kill()
    return results


def main():
    script_arguments, test_arguments = sys.argv[1:], []
    if "--" in script_arguments:
        index = script_arguments.index("--")
        script_arguments, test_arguments = script_arguments[:index], script_arguments[index + 1 :]
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2].strip())
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--limit", type=int, default=1500)
    arguments = parser.parse_args(script_arguments)

    start_time = time.monotonic()
    programs = build(arguments)
    build_end = time.monotonic()
    parallel = sorted((program for program in programs if not program.is_alone), key=Program.order)
    results = run(parallel, arguments.jobs, test_arguments, arguments.limit)
    results += run([program for program in programs if program.is_alone], 1, test_arguments, arguments.limit)
    run_end = time.monotonic()
    failed = [name for name, _, _, passed in results if not passed]
    if not arguments.only:
        command = [CARGO, "test", "--locked", "--workspace", "--doc"]
        if test_arguments:
            command += ["--", *test_arguments]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            failed.append("documentation tests")

    print("\n  seconds  CPU seconds  program")
    for name, seconds, cpu, _ in sorted(results, key=lambda result: -result[1]):
        print(f"{seconds:9.1f}  {cpu:11.1f}  {name}")
    total, cpu = sum(result[1] for result in results), sum(result[2] for result in results)
    print(f"{total:9.1f}  {cpu:11.1f}  in {len(results)} programs")
    print(
        f"build {build_end - start_time:.0f} s, programs {run_end - build_end:.0f} s, "
        f"documentation tests {time.monotonic() - run_end:.0f} s"
    )
    if failed:
        print(f"\nerror: failed: {', '.join(failed)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
