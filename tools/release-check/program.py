#!/usr/bin/env python3
"""Tests a built program in the root file system of its container image, or under emulation.

    program.py image IMAGE.oci.tar        the compose file's proxy in the unpacked image; then a director with "direct"
    program.py proxy PROGRAM              a proxy that serves 1 000 requests
    program.py direct PROGRAM             a director and two servers in namespaces, "direct", 1 000 requests
    program.py arm64 PROGRAM [LIBRARIES]  check, import, explain and the proxy of an arm64 program under qemu-user

The program is process 1 of a PID namespace, as in a container, with only the capabilities in PROXY or DIRECTOR, and
must exit with 0 after SIGTERM. Everything runs in separate network namespaces; requires root. Prints one line for each
check, and exits with 1 at the first failure.
"""

import contextlib
import ctypes
import functools
import hashlib
import http.client
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COMPOSE = ROOT / "contrib/compose"
REQUESTS = 1000
# Linux capabilities by number (linux/capability.h): those of compose.yaml, and those of the manual for layer 4.
PROXY = {"CHOWN": 0, "DAC_OVERRIDE": 1, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8}
DIRECTOR = {"NET_ADMIN": 12, "NET_RAW": 13, "PERFMON": 38, "BPF": 39}
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
LAST_CAPABILITY = 40
DEADLINE_S = 60
HAPROXY = """
defaults
 mode http
frontend f
 bind 127.0.0.1:8081
 default_backend b
backend b
 server s 127.0.0.1:8001
"""

libc = ctypes.CDLL(None, use_errno=True)


class CheckFailed(Exception):
    """A failed check, with the reason."""


def ok(text):
    print(f"ok {text}", flush=True)


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


# --- The program -----------------------------------------------------------------------------------------------------


def unpack(image, directory):
    """Unpacks the layers of an OCI image; returns the root directory and the command that the image starts."""
    layout = directory / "layout"
    layout.mkdir()
    with tarfile.open(image) as archive:
        archive.extractall(layout)
    for blob in (layout / "blobs/sha256").iterdir():
        if hashlib.sha256(blob.read_bytes()).hexdigest() != blob.name:
            raise CheckFailed(f"the blob {blob.name} does not match its digest")

    def blob(descriptor):
        algorithm, digest = descriptor["digest"].split(":")
        return layout / "blobs" / algorithm / digest

    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]).read_text())
    config = json.loads(blob(manifest["config"]).read_text())["config"]
    root = directory / "root"
    root.mkdir()
    for layer in manifest["layers"]:
        run("tar", "-C", root, "-xzf", blob(layer))
    return root, config["Entrypoint"] + config["Cmd"]


def enter(root, capabilities, command):
    """In the child process: limits the capabilities, changes the root, and executes the command."""
    os.chroot(root)
    os.chdir("/")
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    allowed = {int(number) for number in capabilities.split(",") if number}
    for number in range(LAST_CAPABILITY + 1):
        if number not in allowed and libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"capability {number}")
    os.execv(command[0], command)


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def user_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Uid:"))


class Daemon:
    """`weir run` as process 1 of a PID namespace."""

    def __init__(self, root, command, capabilities, log, netns=None):
        self.log = log
        numbers = ",".join(str(number) for number in capabilities.values())
        inside = [sys.executable, os.path.abspath(__file__), "enter", str(root), numbers, *command]
        prefix = ["ip", "netns", "exec", netns] if netns else []
        unshare = ["unshare", "--pid", "--fork", "--kill-child", f"--mount-proc={Path(root) / 'proc'}"]
        with open(log, "w") as output:
            command = [*prefix, *unshare, *inside]
            environment = {"PATH": os.environ["PATH"]}
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def first_pid(self):
        """Returns the PID, in this namespace, of the new namespace's process 1; `ip netns exec` executes unshare."""
        children = children_of(self.process.pid)
        if not children:
            raise CheckFailed(f"the program has ended: {self.tail()}")
        return children[0]

    def tail(self):
        return " | ".join(Path(self.log).read_text().splitlines()[-5:])

    def is_running(self):
        return self.process.poll() is None

    def stop(self):
        """Sends SIGTERM, and requires exit code 0."""
        os.kill(self.first_pid(), signal.SIGTERM)
        code = self.process.wait(timeout=DEADLINE_S)
        if code != 0:
            raise CheckFailed(f"exit code {code} after SIGTERM: {self.tail()}")

    def kill(self):
        if self.is_running():
            self.process.kill()
            self.process.wait()


# --- Servers and requests --------------------------------------------------------------------------------------------


class Origin:
    """A web server that responds with its name."""

    def __init__(self, address, port, name):
        body = name.encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                # Send the response in one write, because a check may close the connection after the head.
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self._headers_buffer += [b"\r\n", body]
                with contextlib.suppress(ConnectionError):
                    self.flush_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer((address, port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()


def request(address, port):
    """Sends a request on a new connection; returns status and body."""
    connection = http.client.HTTPConnection(address, port, timeout=20)
    try:
        connection.request("GET", "/")
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def await_replies(daemon, address, port):
    """Waits until both servers have replied."""
    deadline, seen = time.monotonic() + DEADLINE_S, set()
    while len(seen) < 2:
        if not daemon.is_running() or time.monotonic() > deadline:
            raise CheckFailed(f"replies only from {sorted(seen)}: {daemon.tail()}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, body = request(address, port)
            if status == 200:
                seen.add(body)
        time.sleep(0.02)


def send_requests(label, address, port):
    """Sends 1 000 requests, to which both servers must reply."""
    counts = {}
    for _ in range(REQUESTS):
        status, body = request(address, port)
        if status != 200:
            raise CheckFailed(f"{label}: status {status}")
        counts[body] = counts.get(body, 0) + 1
    if len(counts) != 2:
        raise CheckFailed(f"{label}: only one of the two servers replied: {counts}")
    ok(f"{label}: {REQUESTS} requests, {', '.join(f'{name} {count}' for name, count in sorted(counts.items()))}")


def proxy(label, root, command, directory, start_time=None, meanwhile=None):
    """Tests the proxy of the compose file, with its capabilities, on loopback addresses of this namespace.

    `start_time` is the time at which the first steps of a new user began; their duration is printed. `meanwhile` is
    called while the proxy runs."""
    run("ip", "link", "set", "lo", "up")
    for address in ("10.77.0.11", "10.77.0.12"):
        run("ip", "address", "add", f"{address}/32", "dev", "lo")
    Origin("10.77.0.11", 80, "one")
    Origin("10.77.0.12", 80, "two")
    daemon = Daemon(root, command, PROXY, directory / "weir.log")
    try:
        await_replies(daemon, "127.0.0.1", 8080)
        if start_time is not None:
            elapsed = time.monotonic() - start_time
            ok(f"{label}: balanced requests after {elapsed:.0f} s: load, configuration, check, run, curl: 5 steps")
        send_requests(label, "127.0.0.1", 8080)
        if meanwhile:
            meanwhile()
        users = {user_of(child) for child in children_of(daemon.first_pid())}
        daemon.stop()
        ok(f"{label}: process 1 exited with 0 after SIGTERM; users of its children: {', '.join(sorted(users))}")
    finally:
        daemon.kill()


# --- A director in namespaces ----------------------------------------------------------------------------------------


def director(label, root, program, directory):
    """Tests a client, a director and two servers on one bridge. Director and servers run the program in `root`."""
    prefix = f"weir-{os.getpid()}"
    hosts = {"client": 2, "director": 3, "server1": 4, "server2": 5}
    spaces = {host: f"{prefix}-{host}" for host in ("wire", *hosts)}
    pins = "/sys/fs/bpf"
    try:
        for space in spaces.values():
            run("ip", "netns", "add", space)
        run("ip", "-n", spaces["wire"], "link", "add", "br0", "type", "bridge")
        run("ip", "-n", spaces["wire"], "link", "set", "br0", "up")
        for host, number in hosts.items():
            space = spaces[host]
            run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", host, "netns", spaces["wire"])
            run("ip", "-n", spaces["wire"], "link", "set", host, "master", "br0", "up")
            run("ip", "-n", space, "address", "add", f"10.77.1.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                run("ip", "-n", space, "link", "set", device, "up")
        (root / "etc/weir").mkdir(parents=True, exist_ok=True)
        (root / "etc/weir/director.toml").write_text(
            '[node]\nvip_interface = "eth0"\nmax_flows = 65536\n'
            '[pool.web]\nscheduler = "rr"\nservers = ["10.77.1.4", "10.77.1.5"]\n'
            'check = { kind = "tcp", port = 80, interval = "500ms" }\n'
            '[service.web]\nlisten = ["10.77.1.10:80"]\nforward = "direct"\npool = "web"\n'
        )
        for kind, mount_point in (("sysfs", "sys"), ("bpf", "sys/fs/bpf"), ("proc", "proc")):
            run("mount", "-t", kind, kind, root / mount_point)

        def weir(host, *arguments, check=True):
            options = ["--runtime-dir", f"/run/weir-{host}", "--pin-dir", f"{pins}/{prefix}-{host}"]
            command = ["ip", "netns", "exec", spaces[host], "chroot", root, program, *options, *arguments]
            return subprocess.run([str(part) for part in command], check=check, capture_output=True, text=True)

        for index, host in enumerate(("server1", "server2")):
            weir(host, "real-server", "up", "--forward", "direct", "--vip", "10.77.1.10")
            page = directory / host
            page.mkdir()
            (page / "index.html").write_text(host)
            command = ["ip", "netns", "exec", spaces[host], sys.executable, "-m", "http.server", "80"]
            command += ["--directory", str(page)]
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        command = [program, "--runtime-dir", "/run/weir-director", "--pin-dir", f"{pins}/{prefix}-director"]
        command += ["run", "-c", "/etc/weir/director.toml"]
        daemon = Daemon(root, command, DIRECTOR, directory / "director.log", netns=spaces["director"])
        try:
            client = [sys.executable, os.path.abspath(__file__), "client", "10.77.1.10", "80", label]
            deadline = time.monotonic() + DEADLINE_S
            while weir("director", "status", check=False).stdout.count(" up ") < 2:
                if not daemon.is_running() or time.monotonic() > deadline:
                    raise CheckFailed(f"the servers are not up: {daemon.tail()}")
                time.sleep(0.1)
            run("ip", "netns", "exec", spaces["client"], *client)
            status = json.loads(weir("director", "status", "--json").stdout)
            # `connections` would be too low: clients reuse ports, and a SYN that matches an entry in FIN_WAIT continues
            # this entry (conn_reuse_mode 1, as in IPVS), which is not counted as another connection.
            servers = [server for service in status["services"] for server in service["servers"]]
            handshakes = sum(server["handshakes"]["finished"] for server in servers)
            if handshakes < REQUESTS:
                raise CheckFailed(f"the data plane counted {handshakes} handshakes")
            ok(f"{label}: attached in mode {status['xdp'][0]['mode']}, {handshakes} handshakes counted")
            daemon.stop()
            ok(f"{label}: process 1 exited with 0 after SIGTERM")
        finally:
            daemon.kill()
            weir("director", "clean", "--force", check=False)
            for host in ("server1", "server2"):
                weir(host, "real-server", "down", check=False)
    finally:
        for child in started:
            child.kill()
            child.wait()
        for space in spaces.values():
            subprocess.run(["ip", "netns", "delete", space], check=False, stderr=subprocess.DEVNULL)


started = []


# --- Commands --------------------------------------------------------------------------------------------------------


def prepare(root):
    """Provides what the compose file expects: a tmpfs, the configuration, which root owns, and devices."""
    run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", root / "run/weir")
    run("install", "-m", "644", "-o", "root", COMPOSE / "weir.toml", root / "etc/weir/weir.toml")
    for device in ("null", "urandom"):
        (root / "dev" / device).touch()
        run("mount", "--bind", f"/dev/{device}", root / "dev" / device)


def image(path):
    with tempfile.TemporaryDirectory(prefix="weir-image-") as directory:
        directory = Path(directory)
        run("mount", "-t", "tmpfs", "tmpfs", directory)
        start_time = time.monotonic()
        try:
            root, command = unpack(path, directory)
            size = (root / "usr/bin/weir").stat().st_size
            ok(f"image: unpacked; the program is {size / 2**20:.1f} MiB; the command is {' '.join(command)}")
            prepare(root)
            run("chroot", root, "/usr/bin/weir", "check", stdout=subprocess.DEVNULL)
            ok("image: weir check")
            proxy("image, proxy", root, command, directory, start_time=start_time)
            director("image, direct", root, "/usr/bin/weir", directory)
        finally:
            run("umount", "--recursive", "--lazy", directory)


def root_of(path, directory):
    """Creates a root directory that contains only the program."""
    root = directory / "root"
    for name in ("usr/bin", "etc/weir", "run/weir", "proc", "sys/fs/bpf", "dev", "tmp", "lib"):
        (root / name).mkdir(parents=True)
    run("install", "-m", "755", path, root / "usr/bin/weir")
    prepare(root)
    return root


def test_program(kind, path):
    """Tests a program in a root directory that contains only this program."""
    with tempfile.TemporaryDirectory(prefix="weir-program-") as directory:
        directory = Path(directory)
        run("mount", "-t", "tmpfs", "tmpfs", directory)
        try:
            root = root_of(path, directory)
            if kind == "proxy":
                proxy("proxy", root, ["/usr/bin/weir", "run"], directory)
            else:
                director("direct", root, "/usr/bin/weir", directory)
        finally:
            run("umount", "--recursive", "--lazy", directory)


def arm64(path, libraries="/usr/aarch64-linux-gnu"):
    """Tests an arm64 program; qemu is registered as an interpreter only in this user namespace."""
    run("mount", "-t", "binfmt_misc", "binfmt_misc", "/proc/sys/fs/binfmt_misc")
    magic = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    mask = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    qemu = shutil.which("qemu-aarch64-static") or "/usr/bin/qemu-aarch64-static"
    Path("/proc/sys/fs/binfmt_misc/register").write_bytes(f":weir-arm64:M::{magic}:{mask}:{qemu}:F".encode())
    # The machine of an ELF file (e_machine): 183 is aarch64.
    machine = int.from_bytes(Path(path).read_bytes()[18:20], "little")
    if machine != 183:
        raise CheckFailed(f"arm64: the program is built for ELF machine {machine}")
    with tempfile.TemporaryDirectory(prefix="weir-arm64-") as directory:
        directory = Path(directory)
        run("mount", "-t", "tmpfs", "tmpfs", directory)
        try:
            # Use a separate root, because with QEMU_LD_PREFIX, qemu opens the prefix instead of "/".
            root = root_of(path, directory)
            run("mount", "--bind", Path(libraries) / "lib", root / "lib")
            weir = functools.partial(output_of, root)
            ok(f"arm64: {weir('--version').strip()}")
            weir("check")
            ok("arm64: check")
            (root / "tmp/haproxy.cfg").write_text(HAPROXY)
            if "127.0.0.1:8001" not in weir("import", "haproxy", "--accept-losses", "/tmp/haproxy.cfg"):
                raise CheckFailed("arm64: import: the output does not contain the server")
            ok("arm64: import haproxy")

            def explain():
                explained = weir("explain", "--request", "GET http://127.0.0.1:8080/")
                if "10.77.0.11" not in explained:
                    raise CheckFailed(f"arm64: explain: {explained}")
                ok("arm64: explain")

            proxy("arm64, proxy", root, ["/usr/bin/weir", "run"], directory, meanwhile=explain)
        finally:
            run("umount", "--recursive", "--lazy", directory)


def output_of(root, *arguments):
    done = subprocess.run(["chroot", root, "/usr/bin/weir", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise CheckFailed(f"{arguments[0]}: {done.returncode}: {done.stderr}")
    return done.stdout


def client(address, port, label):
    send_requests(label, address, int(port))


def main(arguments):
    commands = {"image": (image, 1), "proxy": (test_program, 1), "direct": (test_program, 1), "arm64": (arm64, 1)}
    if arguments[:1] == ["enter"]:
        return enter(arguments[1], arguments[2], arguments[3:])
    if arguments[:1] == ["client"]:
        return client(*arguments[1:])
    inside = arguments[:1] == ["inside"]
    arguments = arguments[1:] if inside else arguments
    if not arguments or arguments[0] not in commands or len(arguments) < 2:
        sys.exit(__doc__)
    if not inside:
        # arm64 needs its own user namespace, because only such a namespace has its own table of interpreters.
        options = ["--user", "--map-root-user"] if arguments[0] == "arm64" else []
        options += ["--net", "--mount", "--propagation", "private"]
        os.execvp("unshare", ["unshare", *options, sys.executable, os.path.abspath(__file__), "inside", *arguments])
    function = commands[arguments[0]][0]
    try:
        function(*(arguments if function is test_program else arguments[1:]))
    except (CheckFailed, OSError, subprocess.CalledProcessError) as failure:
        print(f"FAILED {arguments[0]}: {failure}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
