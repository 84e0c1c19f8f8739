#!/usr/bin/env python3
"""Runs haproxy or nginx and Weir with the same configuration, and compares what clients and servers receive.

For each haproxy.cfg or nginx.conf, runs the program itself, then Weir with the output of `weir import`, in a network
namespace in front of the same stub servers. Generates requests from the file: for each of its ports, hosts and paths,
and with the header fields of its conditions. Compares the status, the header fields, the pool of the selected server,
the request that the server received, and the body.

Both programs get a copy of the file without process settings, and with generated certificates in place of those that
it names. For a response that the program itself generates, the status and the header fields are compared, and the
body only if the status is below 300. Date, Server, Via and fields about the connection are not compared.

  identical   no difference
  noted       there are differences, and the import reports lines with changed behavior
  different   there are differences, but the import reports no such line: the exit status is 1
  not run     one of the programs does not start with the file

Directives of nginx modules that no available program has are removed for both; the result names them. Zones that the
file uses but does not define are added, and caches are removed, as in irrelevant.list. Requests that nginx passes to
FastCGI are not compared, because the list excludes them.

Requires root, iproute2, openssl, and the program. Everything runs in separate namespaces and in a temporary directory.
Several --program options of a kind are tried in turn; --modules is the directory of nginx modules.
"""

import argparse
import email.utils
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
REPETITIONS = 3
MAX_REQUESTS = 90
SERVER_NET = "198.18.0."
IGNORED = {"date", "server", "via", "connection", "keep-alive", "content-length", "transfer-encoding", "x-stub",
           "accept-ranges", "etag", "last-modified", "vary", "retry-after", "cache-control-stub"}
IGNORED_AT_SERVER = {"via", "connection", "keep-alive", "te", "proxy-connection"}
FASTCGI = "fastcgi"
ADDRESS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?![\d.])")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default=str(ROOT / "target/release/weir"), help="path of the weir binary")
    parser.add_argument("--show", action="store_true", help="list the differences")
    parser.add_argument("--program", action="append", default=[], metavar="KIND:PATH",
                        help="haproxy or nginx binary to use instead of the one in PATH; several are tried in turn")
    parser.add_argument("--modules", default="/usr/lib/nginx/modules", help="directory of nginx modules")
    parser.add_argument("files", nargs="*", help="KIND:FILE, with KIND haproxy or nginx")
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    parser.add_argument("--names", help=argparse.SUPPRESS)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.servers:
        return serve(json.loads(arguments.servers))
    if arguments.names:
        return serve_dns(json.loads(arguments.names))
    if arguments.ask:
        return ask(json.loads(pathlib.Path(arguments.ask).read_text()))
    if os.geteuid() != 0:
        sys.exit("side-by-side.py needs root: it creates network namespaces")
    results = []
    for name in arguments.files:
        outcome, details = compare(arguments, *name.split(":", 1))
        show(name, outcome, details, arguments.show)
        results.append(outcome)
    return report(results)


def show(name, outcome, details, everything):
    """Prints the result of a file."""
    print(f"{outcome:10} {name}" + (f": {details}" if outcome == "not run" else ""), flush=True)
    if outcome == "different" or (everything and outcome != "not run"):
        for detail in details[:None if everything else 5]:
            print(f"           {detail}")


def report(results):
    """Prints the shares, and returns the exit status."""
    counts = {kind: results.count(kind) for kind in ["identical", "noted", "different", "not run"]}
    both = len(results) - counts["not run"]
    share = f"{100 * counts['identical'] / both:.1f}%" if both else "-"
    print(f"{counts['identical']} of {both} files that both programs run behave identically ({share}); "
          f"{counts['noted']} differ as reported by the import, {counts['different']} differ without a report; "
          f"{counts['not run']} do not run")
    return 1 if counts["different"] else 0


# ------------------------------------------------------------------------------------------- one file


def compare(arguments, kind, path):
    """Returns the outcome for a file, and the differences or the reason why it does not run."""
    text = pathlib.Path(path).read_bytes().decode("utf-8", "replace")
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as directory:
        directory = pathlib.Path(directory)
        os.chmod(directory, 0o755)
        prepared = prepare(kind, text, directory)
        with TestNetwork(kind, prepared, directory) as network:
            file = directory / f"{kind}.cfg"
            program, prepared, left_out = choose(arguments, kind, file, prepared, network)
            requests = generate(kind, prepared, network)
            if not requests:
                return "not run", "the file has no listener"
            peer_responses = network.run(program, requests)
            if isinstance(peer_responses, str):
                return "not run", f"{pathlib.Path(program[0]).name}: {peer_responses}"
            done = subprocess.run([arguments.weir, "import", kind, str(file)], capture_output=True, timeout=60)
            toml = directory / "weir.toml"
            toml.write_bytes(done.stdout)
            weir_command = [arguments.weir, "run", "-c", str(toml), "--runtime-dir", str(directory / "run"),
                            "--pin-dir", str(directory / "pins")]
            weir_responses = network.run(weir_command, requests)
            if isinstance(weir_responses, str):
                return "not run", f"{pathlib.Path(weir_command[0]).name}: {weir_responses}"
        differences = []
        pools = servers_by_pool(peer_responses, servers_by_block(kind, prepared, network.names))
        # Statistics differ between the programs.
        statistics = {url_of(request) for request, peer in zip(requests, peer_responses)
                      if peer[0]["body"].startswith("Active connections: ")}
        for request, peer, weir in zip(requests, peer_responses, weir_responses):
            if peer[0]["server"] == FASTCGI or url_of(request) in statistics:
                continue
            difference = first_difference(peer, weir, pools)
            if difference:
                differences.append(f"{request['method']} {request['host']}:{request['port']}{request['path']} "
                                   f"{request['headers'] or ''}: {difference}")
        if not differences:
            return "identical", left_out
        return ("noted" if done.returncode else "different"), left_out + differences


def url_of(request):
    return request["host"], request["port"], request["path"]


def choose(arguments, kind, file, prepared, network):
    """Returns the command of the program that needs the fewest removals, its file, and the removed directives."""
    paths = [path for program, path in (option.split(":", 1) for option in arguments.program) if program == kind]
    best = None
    for program in paths or [kind]:
        text, left_out = prepared, []
        if kind == "haproxy":
            command = [program, "-db", "-f", str(file)]
        else:
            command = [program, "-p", str(file.parent), "-c", str(file), "-g", "daemon off;"]
            text = load_modules(program, arguments.modules, text)
        for _ in range(20):
            file.write_text(text)
            check = [program, "-c", "-f", str(file)] if kind == "haproxy" else [*command[:5], "-t"]
            done = subprocess.run(["ip", "netns", "exec", network.front, *check], capture_output=True, timeout=60)
            unknown = re.search(rb'unknown directive "([\w]+)"', done.stderr)
            if done.returncode == 0 or kind == "haproxy" or not unknown:
                break
            text = remove_directive(text, unknown.group(1).decode())
            left_out.append(f"without {unknown.group(1).decode()}")
        rank = (done.returncode != 0, len(left_out))
        if best is None or rank < best[0]:
            best = (rank, (command, text, left_out))
        if rank == (False, 0):
            break
    file.write_text(best[1][1])
    return best[1]


def load_modules(program, directory, text):
    """Returns an nginx file that loads all modules of the directory, if the program supports dynamic modules."""
    built = subprocess.run([program, "-V"], capture_output=True).stderr.decode()
    if "--with-compat" not in built:
        return text
    files = sorted(pathlib.Path(directory).glob("*.so"), key=lambda path: (not path.name.startswith("ndk"), path.name))
    return "".join(f"load_module {file};\n" for file in files) + text


def remove_directive(text, name):
    """Returns a file without a directive, and without its block if it has one."""
    out, at = [], 0
    for found in re.finditer(rf"(?:(?<=[;{{}}\s])|^){name}\b", text):
        if found.start() < at:
            continue
        out.append(text[at:found.start()])
        # Quoted words can contain `;` and braces.
        end = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^;{\"'])*([;{])").match(text, found.end())
        at = end.end() if end else len(text)
        depth = 1 if end and end.group(1) == "{" else 0
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
    return "".join(out) + text[at:]


def servers_by_pool(answers, blocks):
    """Returns, for each server, its pool: the servers that are in the same block or receive the same requests."""
    found = {}
    requests = [{answer["server"] for answer in request if answer["server"]} for request in answers]
    for servers in blocks + requests:
        merged = servers.union(*(found.get(server, ()) for server in servers))
        found.update({server: merged for server in merged})
    return found


def servers_by_block(kind, text, names):
    """Returns the servers of each `upstream`, `backend` or `listen`."""
    if kind == "nginx":
        blocks = re.findall(r"\bupstream\s[^{]*{([^}]*)}", text)
    else:
        blocks = re.split(r"^(?=(?:frontend|backend|listen|defaults|global)\b)", text, flags=re.M)
    found = []
    for block in blocks:
        server = r"\bserver\s+\"?([^\s;\"]+)" if kind == "nginx" else r"^\s*server\s+\S+\s+(\S+)"
        words = re.findall(server, block, re.M)
        pairs = [word.partition(":") for word in words]
        found.append({f"{names.get(host, host)}:{port or 80}" for host, _, port in pairs})
    return found


def first_difference(peer_responses, weir_responses, pools):
    """Returns the first difference between two lists of responses to one request."""
    peer, weir = peer_responses[0], weir_responses[0]
    # If no location matches the path, nginx checks the method first.
    if peer["status"] == 405 and weir["status"] == 404 and not peer["server"]:
        return None
    if peer["status"] != weir["status"]:
        return f"status {peer['status']}, Weir {weir['status']}"
    if bool(peer["server"]) != bool(weir["server"]):
        return f"server {peer['server']}, Weir {weir['server']}"
    if peer["server"]:
        chosen = {answer["server"] for answer in weir_responses}
        if not chosen <= pools[peer["server"]]:
            return f"pool {sorted(pools[peer['server']])}, Weir {sorted(map(str, chosen))}"
        for key in ["method", "path", "body"]:
            if peer["received"][key] != weir["received"][key]:
                return f"the server receives {key} {peer['received'][key]!r}, from Weir {weir['received'][key]!r}"
        found = first_field_difference(peer["received"]["headers"], weir["received"]["headers"])
        if found:
            return f"the server receives {found}"
    elif peer["status"] < 300 and peer["body"] != weir["body"]:
        return f"body {peer['body'][:60]!r}, Weir {weir['body'][:60]!r}"
    found = first_field_difference(peer["headers"], weir["headers"])
    return f"response {found}" if found else None


def first_field_difference(peer, weir):
    """Returns the first field that differs.

    Repeated fields are equal to one field with all values (RFC 9110 section 5.3), and an empty field is equal to none,
    because nginx does not send empty fields. All random identifiers are equal.
    """
    def joined(values):
        return re.sub(r"\b[0-9a-f]{32}\b", "ID", ", ".join(values or [])) or None

    for name in sorted(set(peer) | set(weir)):
        if joined(peer.get(name)) != joined(weir.get(name)):
            return f"{name}: {peer.get(name)!r}, Weir {weir.get(name)!r}"
    return None


# ------------------------------------------------------------------------------------------- preparing the file


def prepare(kind, text, directory):
    """Returns the file without comments and process settings, and with paths of files that exist."""
    create_certificate(directory)
    text = re.sub(r"(^|\s)#.*", "", text)
    return {"haproxy": prepare_haproxy, "nginx": prepare_nginx}[kind](text, directory)


def create_certificate(directory):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", directory / "own.key", "-out", directory / "own.crt", "-days", "30", "-subj",
                    "/CN=side.example", "-addext", "subjectAltName=DNS:side.example"], check=True,
                   capture_output=True)
    both = (directory / "own.crt").read_text() + (directory / "own.key").read_text()
    (directory / "own.pem").write_text(both)


def prepare_haproxy(text, directory):
    drop = re.compile(r"^\s*(user|group|chroot|daemon|pidfile|log|nbproc|nbthread|cpu-map|stats\s+(socket|timeout)|"
                      r"ca-base|crt-base|ssl-dh-param-file|uid|gid|ulimit-n|maxconn\s+\d{6,})\b")
    section = ""
    lines = []
    for line in text.splitlines():
        section = line.split()[0] if line.strip() and not line[0].isspace() else section
        is_user = section == "userlist" and re.match(r"^\s*(user|group)\b", line)
        if drop.match(line) and not is_user:
            line = ""
        # The stub servers support only HTTP, so other checks would fail.
        if re.match(r"^\s*(server|default-server|server-template)\s", line):
            line = re.sub(r"\s(check|agent-check|check-ssl)(?=\s|$)", "", line)
        line = re.sub(r"\bcrt\s+\S+", f"crt {directory}/own.pem", line)
        line = re.sub(r"\bca-file\s+\S+", f"ca-file {directory}/own.crt", line)
        page = re.match(r"^\s*errorfile\s+(\d+)\s+(\S+)", line)
        if page:
            file = directory / f"{page.group(1)}.http"
            file.write_text(f"HTTP/1.0 {page.group(1)} Page\r\nCache-Control: no-cache\r\nContent-Type: text/html"
                            f"\r\n\r\npage {page.group(1)}\n")
            line = f"    errorfile {page.group(1)} {file}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def prepare_nginx(text, directory):
    drop = re.compile(r"^\s*(user|pid|error_log|access_log|worker_processes|worker_rlimit_nofile|load_module|"
                      r"ssl_dhparam|ssl_trusted_certificate|daemon|worker_cpu_affinity|proxy_cache\w*|\w+_temp_path)"
                      r"\b[^{]*;")
    lines = []
    for line in text.splitlines():
        if drop.match(line):
            line = drop.sub("", line)
        found = re.match(r"^\s*include\s+(\S+);", line)
        if found and not found.group(1).endswith(("mime.types", "fastcgi_params", "fastcgi.conf")):
            line = ""
        line = re.sub(r"^(\s*)include\s+\S*(mime\.types|fastcgi_params|fastcgi\.conf);", r"\1include /etc/nginx/\2;",
                      line)
        line = re.sub(r"\bssl_certificate\s+[^;]+;", f"ssl_certificate {directory}/own.crt;", line)
        line = re.sub(r"\bssl_certificate_key\s+[^;]+;", f"ssl_certificate_key {directory}/own.key;", line)
        line = re.sub(r"\bssl_client_certificate\s+[^;]+;", f"ssl_client_certificate {directory}/own.crt;", line)
        line = re.sub(r"\bresolver\s+[^;]+;", "resolver 127.0.0.1 ipv6=off;", line)
        line = re.sub(r"\bauth_basic_user_file\s+[^;]+;", f"auth_basic_user_file {directory}/users;", line)
        lines.append(line)
    text = "\n".join(lines) + "\n"
    hashed = subprocess.run(["openssl", "passwd", "-5", "secret"], check=True, capture_output=True).stdout.decode()
    (directory / "users").write_text(f"user:{hashed}")
    www = directory / "www"
    www.mkdir()
    for name in ["index.html", "50x.html", "404.html", "500.html", "a.css", "a.js"]:
        (www / name).write_text(f"file {name}\n")
    text = re.sub(r"(^|[\s{;])(root|alias)\s+[^;]+;", rf"\1\2 {www}/;", text)
    if not re.search(r"^\s*(http|stream)\s*{", text, re.M):
        text = "http {\n" + text + "}\n"
    added = missing_directives(text, directory)
    text = re.sub(r"^(\s*)http\s*{", lambda found: found.group() + "\n" + added, text, count=1, flags=re.M)
    if not re.search(r"^\s*events\s*{", text, re.M):
        text = "events {}\n" + text
    # The directory `html`, which nginx serves by default, must not exist, because Weir has no such default.
    (directory / "logs").mkdir(exist_ok=True)
    return f"pid {directory}/nginx.pid;\nerror_log {directory}/error.log;\nworker_processes 1;\n" + text


def missing_directives(text, directory):
    """Returns directives that a file of conf.d expects in the main file: certificates, and zones of limits."""
    lines = []
    if re.search(r"\blisten\s[^;]*\bssl\b", text) and "ssl_certificate " not in text:
        lines += [f"ssl_certificate {directory}/own.crt;", f"ssl_certificate_key {directory}/own.key;"]
    for kind, rate in [("limit_req", " rate=1000r/s"), ("limit_conn", "")]:
        zones = re.findall(rf"\b{kind}\s+(?:zone=)?([\w-]+)", text)
        defined = re.findall(rf"\b{kind}_zone\s[^;]*\bzone=([\w-]+)", text)
        lines += [f"{kind}_zone $binary_remote_addr zone={zone}:1m{rate};" for zone in sorted({*zones} - {*defined})]
    return "".join(f"{line}\n" for line in lines)


# ------------------------------------------------------------------------------------------- the network


class TestNetwork:
    """Two network namespaces: one for the programs, and one for the servers."""

    def __init__(self, kind, text, directory):
        self.kind, self.directory = kind, directory
        self.front, self.back = f"sbs{os.getpid()}f", f"sbs{os.getpid()}b"
        self.names, self.ports, self.listeners = find(kind, text)
        own = {address for address, _, _ in self.listeners if address not in ("0.0.0.0", "::")}
        self.own = {address for address in own if not address.startswith("127.")}
        all_addresses = {address for address in ADDRESS.findall(text) if is_usable(address)}
        self.remote = all_addresses - self.own
        self.processes = []

    def __enter__(self):
        run = lambda *words: subprocess.run(words, check=True, capture_output=True)
        for name in [self.front, self.back]:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", self.front, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.back)
        for name, address in [(self.front, "198.19.255.1/30"), (self.back, "198.19.255.2/30")]:
            run("ip", "-n", name, "address", "add", address, "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", self.front, "route", "add", "default", "via", "198.19.255.2")
        run("ip", "-n", self.back, "route", "add", "default", "via", "198.19.255.1")
        for address in self.own:
            run("ip", "-n", self.front, "address", "add", f"{address}/32", "dev", "lo")
        for address in self.remote | set(self.names.values()):
            run("ip", "-n", self.back, "address", "add", f"{address}/32", "dev", "lo")
        etc = pathlib.Path("/etc/netns") / self.front
        etc.mkdir(parents=True)
        (etc / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        hosts = [f"{address} {name}\n" for name, address in self.names.items()]
        (etc / "hosts").write_text("127.0.0.1 localhost\n" + "".join(hosts))
        stub = {"ports": sorted(self.ports), "directory": str(self.directory)}
        listener_ports = {port for _, port, _ in self.listeners}
        free_ports = [port for port in stub["ports"] if port not in listener_ports]
        local = {**stub, "ports": free_ports, "address": "127.0.0.1"}
        self.start(self.back, [sys.executable, __file__, "--servers", json.dumps(stub)])
        self.start(self.front, [sys.executable, __file__, "--servers", json.dumps(local)])
        self.start(self.front, [sys.executable, __file__, "--names", json.dumps(self.names)])
        time.sleep(0.3)
        return self

    def start(self, namespace, command, **options):
        process = subprocess.Popen(["ip", "netns", "exec", namespace, *command], start_new_session=True, **options)
        self.processes.append(process)
        return process

    def run(self, command, requests):
        """Returns the responses to each request, or the reason why the program does not run."""
        log = self.directory / "log"
        with open(log, "wb") as output:
            process = self.start(self.front, command, stdout=output, stderr=output)
        try:
            endpoints = {(request["address"], request["port"]) for request in requests}
            deadline = time.monotonic() + 10
            pending = True
            while pending and process.poll() is None and time.monotonic() < deadline:
                # Weir may lack listeners that were not imported, which is a difference and not a failure to start.
                open_states = self.ask([{"connect": list(pair)} for pair in sorted(endpoints)])
                pending = not (any(open_states) if command[1:2] == ["run"] else all(open_states))
                time.sleep(0.1)
            if pending:
                lines = log.read_text(errors="replace").splitlines()
                problem = re.compile("error|alert|emerg|refused|cannot", re.I)
                problems = [line for line in lines if problem.search(line)] or lines[-1:]
                return problems[0][:200] if problems else "the program does not listen"
            time.sleep(0.5)
            return self.ask(requests)
        finally:
            stop(process)
            self.processes.remove(process)

    def ask(self, requests):
        file = self.directory / "requests.json"
        file.write_text(json.dumps(requests))
        done = subprocess.run(["ip", "netns", "exec", self.front, sys.executable, __file__, "--ask", str(file)],
                              capture_output=True, timeout=300)
        if done.returncode:
            sys.exit(done.stderr.decode())
        return json.loads(done.stdout)

    def __exit__(self, *_):
        for process in self.processes:
            stop(process)
        for name in [self.front, self.back]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        shutil.rmtree(pathlib.Path("/etc/netns") / self.front, ignore_errors=True)


def stop(process):
    for number in [signal.SIGTERM, signal.SIGKILL]:
        try:
            os.killpg(process.pid, number)
            process.wait(3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return


def is_usable(address):
    parts = [int(part) for part in address.split(".")]
    return all(part < 256 for part in parts) and 0 < parts[0] < 224 and parts[0] != 127


def find(kind, text):
    """Returns the addresses of servers by name, the servers' ports, and the listeners."""
    targets = []
    if kind == "haproxy":
        for line in re.findall(r"^\s*server(?:-template)?\s+(.*)$", text, re.M):
            words = line.split()
            if len(words) > 1:
                targets.append((words[1], None))
                port = re.search(r"\bport\s+(\d+)", line)
                targets += [(f"{words[1].split(':')[0]}:{port.group(1)}", None)] if port else []
        upstreams = []
    else:
        for scheme, target in re.findall(r"\b\w+_pass\s+\"?((?:http|grpc)s?://)?([^;/\s\"]+)", text):
            targets.append((target, 443 if scheme in ("https://", "grpcs://") else 80))
        upstreams = re.findall(r"\bupstream\s+([^\s{]+)", text)
        targets = [target for target in targets if target[0] not in upstreams]
        targets += [(target, 80) for target in re.findall(r"\bserver\s+\"?([^\s;{\"]+)", text)]
    names, ports, without = {}, set(), False
    for target, default in targets:
        host, _, port = target.partition(":")
        port = int(port) if port.isdigit() else default
        if port is None:
            without = True
        else:
            ports.add(port)
        is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host) and not ADDRESS.fullmatch(host)
        if is_name and host not in names and host != "localhost" and len(names) < 250:
            names[host] = f"{SERVER_NET}{len(names) + 1}"
    listeners = listeners_of(kind, text)
    if without:
        ports |= {port for _, port, _ in listeners}
    return names, ports, listeners


def listeners_of(kind, text):
    """Returns the address, port and TLS of each listener."""
    found = []
    if kind == "haproxy":
        # Sections that only show statistics differ between the programs.
        sections = re.split(r"^(?=(?:global|defaults|frontend|backend|listen|userlist)\b)", text, flags=re.M)
        traffic = r"^\s*(server|use_backend|default_backend|redirect|http-request)\b"
        is_statistics = lambda section: (re.search(r"^\s*stats\s", section, re.M)
                                         and not re.search(traffic, section, re.M))
        text = "".join(section for section in sections if not is_statistics(section))
        for line in re.findall(r"^\s*bind\s+(.*)$", text, re.M):
            for address in line.split()[0].split(","):
                host, _, port = address.rpartition(":")
                if port.isdigit() and "accept-proxy" not in line:
                    found.append((host.replace("*", "") or "0.0.0.0", int(port), " ssl" in line))
        for host, port in re.findall(r"^\s*listen\s+\S+\s+([\d.*]*):(\d+)", text, re.M):
            found.append((host.replace("*", "") or "0.0.0.0", int(port), False))
    else:
        for line in re.findall(r"\blisten\s+([^;]+);", text):
            words = line.split()
            host, _, port = words[0].rpartition(":")
            port = port if port.isdigit() else "80"
            if "[" not in words[0] and "udp" not in words:
                found.append((host.replace("*", "") or "0.0.0.0", int(port), "ssl" in words))
        # A `server` without `listen` uses port 80.
        blocks = re.split(r"^\s*server\s*{", text, flags=re.M)[1:]
        has_none = any(not re.search(r"^\s*listen\s", block, re.M) for block in blocks)
        if has_none and not re.search(r"^\s*stream\s*{", text, re.M):
            found.append(("0.0.0.0", 80, False))
    return sorted({(host, port, tls) for host, port, tls in found if ADDRESS.fullmatch(host)})


# ------------------------------------------------------------------------------------------- requests


def generate(kind, text, network):
    """Returns requests for each listener: hosts and paths of the file, and header fields of its conditions."""
    hosts, paths, headers, methods = ["other.example"], ["/", "/other/x.html?q=1"], [], []
    if kind == "haproxy":
        for words in re.findall(r"hdr(?:_\w+)?\(host\)\s+([^}\n]*)", text, re.I):
            hosts += [host for host in words.split() if re.fullmatch(r"[\w.-]+\.\w+(:\d+)?", host)]
            hosts += [f"{host.strip('.')}.example" for host in words.split() if re.fullmatch(r"\.?\w[\w.-]*", host)]
        for words in re.findall(r"path(?:_\w+)?\s+([^}\n]*)", text):
            paths += [path if path.startswith("/") else f"/a/{path}" for path in words.split()
                      if re.fullmatch(r"/?[\w./-]+", path) and path not in ("if", "or")]
        for name, words in re.findall(r"hdr(?:_\w+)?\((?!host)([\w-]+)\)\s+([^}\n]*)", text, re.I):
            headers += [{name: word} for word in words.split() if re.fullmatch(r"[\w.:/-]+", word) and word[0] != "-"]
        # Only application cookies: the values of other cookies depend on the program.
        values = re.findall(r"^\s*server\s.*\scookie\s+(\S+)", text, re.M)
        for name in re.findall(r"^\s*cookie\s+(\S+)\s*$", text, re.M):
            headers += [{"cookie": f"{name}={value}"} for value in values]
    else:
        for words in re.findall(r"\bserver_name\s+([^;]+);", text):
            hosts += [name.replace("*", "x") for name in words.split() if re.fullmatch(r"[\w.*-]+", name)]
            hosts += [sample(name[1:]) for name in words.split() if name.startswith("~")]
        expressions = re.findall(r"\blocation\s+~\*?\s*\"?([^\s\"]+?)\"?\s*{", text)
        expressions += re.findall(r"\brewrite\s+\"?([^\s\"]+)", text)
        paths += [path for path in map(sample, expressions) if re.fullmatch(r"/[\x21-\x7e]*", path)]
        for _, path in re.findall(r"\blocation\s+(=\s*|~\*?\s*|\^~\s*)?([^\s{]+)", text):
            plain = path if path.startswith("/") else None
            if plain and re.fullmatch(r"[\w./-]+", plain):
                paths += [plain, plain.rstrip("/") + "/x/y.js?a=b"]
            paths += [f"/a.{ending}" for ending in re.findall(r"\b(css|js|png|php|jpg|html)\b", path)]
        for name, word in re.findall(r"\$http_(\w+)\s*!?[=~*]+\s*\"?([\w-]+)", text):
            headers.append({name.replace("_", "-"): word})
        for name, words in re.findall(r"\bmap\s+\$cookie_(\w+)\s[^{]*{([^}]*)}", text):
            headers += [{"cookie": f"{name}={word}"} for word in re.findall(r"^\s*\"?(\w+)", words, re.M)]
        methods = [word for words in re.findall(r"\$request_method\s*!?[=~*]+\s*(\S+)|\blimit_except([^{]+)", text)
                   for word in re.findall(r"[A-Z]{3,}", " ".join(words))]
        methods = list(dict.fromkeys(["HEAD", *methods, *(["DELETE"] if methods else [])]))
    hosts = list(dict.fromkeys(host for host in hosts if host not in ("_", "")))
    hosts = [host.strip(".") for host in hosts]
    paths, requests = list(dict.fromkeys(paths)), []
    for address, port, tls in network.listeners:
        to = {"address": "127.0.0.1" if address == "0.0.0.0" else address, "port": port, "tls": tls, "body": ""}
        for host in hosts:
            for path in paths:
                requests.append({**to, "method": "GET", "host": host, "path": path, "headers": {}})
            for fields in headers:
                requests.append({**to, "method": "GET", "host": host, "path": "/", "headers": fields})
            for method in methods:
                requests += [{**to, "method": method, "host": host, "path": path, "headers": {}} for path in paths[:6]]
            requests.append({**to, "method": "POST", "host": host, "path": "/", "headers": {}, "body": "a=b"})
        own = {"X-Forwarded-For": "203.0.113.7", "X-Real-IP": "203.0.113.8", "X-Forwarded-Proto": "https"}
        requests.append({**to, "method": "GET", "host": hosts[-1], "path": "/", "headers": own})
    step = max(1, -(-len(requests) // MAX_REQUESTS))
    requests = requests[::step]
    # The body of a response to GET shows whether a page has statistics.
    pages = re.findall(r"\blocation\s+(?:=\s*)?(/\S*)\s*{[^}]*\bstub_status\b", text)
    get_requests = [{**request, "method": "GET"} for request in requests
                    if request["method"] == "HEAD" and request["path"].startswith(tuple(pages))]
    return requests + get_requests


def sample(expression):
    """Returns a string that matches a regular expression, or an empty string if none is found."""
    try:
        parsed = re._parser.parse(re.sub(r"\(\?<(?=\w)", "(?P<", expression.replace("\\/", "/")))
    except (re.error, AttributeError):
        return ""
    text = sample_from(parsed).replace("//", "/")
    return text if text.startswith("/") or not expression.startswith(("^/", "\\.")) else "/a" + text


def sample_from(parsed):
    out = ""
    for kind, value in parsed:
        kind = str(kind)
        if kind == "LITERAL":
            out += chr(value)
        elif kind == "IN":
            first = [item for item in value if str(item[0]) in ("LITERAL", "RANGE", "CATEGORY")]
            negated = str(value[0][0]) == "NEGATE"
            named = {"LITERAL": lambda it: chr(it), "RANGE": lambda it: chr(it[0]),
                     "CATEGORY": lambda it: "1" if "DIGIT" in str(it) and "NOT" not in str(it) else "a"}
            out += "z" if negated or not first else named[str(first[0][0])](first[0][1])
        elif kind in ("ANY", "NOT_LITERAL"):
            out += "y"
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, inner = value
            out += sample_from(inner) * (least or min(1, int(most)))
        elif kind == "SUBPATTERN":
            out += sample_from(value[3])
        elif kind == "BRANCH":
            out += sample_from(value[1][0])
    return out


def ask(requests):
    """Prints the responses to the requests, or for connection tests whether each port is open."""
    if "connect" in requests[0]:
        print(json.dumps([is_open(*request["connect"]) for request in requests]))
        return 0
    print(json.dumps([[fetch(request) for _ in range(REPETITIONS)] for request in requests]))
    return 0


def is_open(address, port):
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


def fetch(request):
    answer = {"status": 0, "server": None, "headers": {}, "body": "", "received": None}
    try:
        if request["tls"]:
            context = ssl._create_unverified_context()
            context.check_hostname = False
            raw = socket.create_connection((request["address"], request["port"]), 3)
            connection = http.client.HTTPConnection(request["address"], request["port"], timeout=3)
            connection.sock = context.wrap_socket(raw, server_hostname=request["host"].split(":")[0])
        else:
            connection = http.client.HTTPConnection(request["address"], request["port"], timeout=3)
        fields = {"Host": request["host"], "User-Agent": "side-by-side", "Accept": "*/*", **request["headers"]}
        if any(name.lower() == "upgrade" for name in fields):
            fields.update({"Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
        connection.request(request["method"], request["path"], request["body"] or None, fields)
        response = connection.getresponse()
        body = response.read().decode("latin-1")
        connection.close()
    except (OSError, http.client.HTTPException):
        return answer
    answer["status"], answer["body"] = response.status, body
    headers = {}
    for name, value in response.getheaders():
        headers.setdefault(name.lower(), []).append(value)
    answer["server"] = headers.get("x-stub", [None])[0]
    ignored = IGNORED if answer["server"] else IGNORED | {"content-type"}
    # HAProxy adds `Cache-Control: no-cache` to redirects that caches do not store anyway (RFC 9110 section 15.4).
    if response.status in (302, 303, 307) and headers.get("cache-control") == ["no-cache"] and not answer["server"]:
        ignored = ignored | {"cache-control"}
    if response.status >= 400 and not answer["server"]:
        ignored = ignored | {"cache-control", "allow"}
    answer["headers"] = {name: sorted(values) for name, values in headers.items() if name not in ignored}
    if answer["server"]:
        try:
            answer["received"] = json.loads(body)
        except ValueError:
            answer["received"] = {"method": "", "path": "", "body": body, "headers": {}}
        fields = answer["received"]["headers"]
        answer["received"]["headers"] = {name: fields[name] for name in fields if name not in IGNORED_AT_SERVER}
        # The default port can be omitted (RFC 9110 section 4.2.3).
        default = ":443" if request["tls"] else ":80"
        hosts = answer["received"]["headers"].get("host", [])
        answer["received"]["headers"]["host"] = [host.removesuffix(default) for host in hosts]
    # A relative reference is equivalent to the URL that it resolves to (RFC 9110 section 10.2.2).
    if "location" in answer["headers"]:
        scheme = "https" if request["tls"] else "http"
        port = "" if request["port"] == (443 if request["tls"] else 80) else f":{request['port']}"
        host = request["host"] if ":" in request["host"] else request["host"] + port
        base = f"{scheme}://{request['host']}{request['path']}"
        answer["headers"]["location"] = [urllib.parse.urljoin(base, it).replace(f"://{host}/", f"://{request['host']}/")
                                         for it in answer["headers"]["location"]]
    # Recipients ignore `Expires` next to `max-age` (RFC 9111 section 5.3), and `no-cache` requires validation of a
    # response regardless of its age (section 5.2.2.4).
    if any("max-age" in value or "no-cache" in value for value in headers.get("cache-control", [])):
        answer["headers"].pop("expires", None)
    # The parameter `charset` is only advisory (RFC 7617 section 2.1).
    if "www-authenticate" in answer["headers"]:
        values = answer["headers"]["www-authenticate"]
        answer["headers"]["www-authenticate"] = [value.replace(', charset="UTF-8"', "") for value in values]
    # The programs set cookies with different values.
    if "set-cookie" in answer["headers"]:
        values = answer["headers"]["set-cookie"]
        values = [with_max_age(value, headers.get("date", [""])[0]) for value in values]
        # Names of attributes are case-insensitive (RFC 6265 section 5.2).
        answer["headers"]["set-cookie"] = sorted(re.sub(r"=[^;]*", "=", value, count=1).lower() for value in values)
    return answer


def with_max_age(cookie, date):
    """Returns a cookie with the equivalent `Max-Age` in place of `Expires` (RFC 6265 section 5.3)."""
    found = re.search(r"\bexpires=([^;]+)", cookie, re.I)
    until, now = (email.utils.parsedate_tz(text) for text in [found.group(1) if found else "", date])
    if not until or not now:
        return cookie
    seconds = round(email.utils.mktime_tz(until) - email.utils.mktime_tz(now), -1)
    return cookie.replace(found.group(), f"max-age={seconds}")


# ------------------------------------------------------------------------------------------- stubs


def serve(stub):
    """Serves HTTP on each port; the body of a response contains the received request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{stub['directory']}/own.pem")
    for port in stub["ports"]:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((stub.get("address", "0.0.0.0"), port))
        except OSError:
            continue
        listener.listen(128)
        threading.Thread(target=accept, args=(listener, context), daemon=True).start()
    threading.Event().wait()


def accept(listener, context):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle_connection, args=(connection, context), daemon=True).start()


def handle_connection(connection, context):
    try:
        address, port = connection.getsockname()[:2]
        connection.settimeout(30)
        # The first byte of a TLS handshake is 22, and that of a FastCGI record is 1.
        first = connection.recv(1, socket.MSG_PEEK)
        if first == b"\x01":
            return answer_fastcgi(connection)
        if first == b"\x16":
            connection = context.wrap_socket(connection, server_side=True)
        stream = connection.makefile("rb")
        while True:
            line = stream.readline().decode("latin-1").split()
            if len(line) != 3:
                return
            headers = {}
            while True:
                field = stream.readline().decode("latin-1").strip()
                if not field:
                    break
                name, _, value = field.partition(":")
                headers.setdefault(name.lower(), []).append(value.strip())
            if "chunked" in "".join(headers.get("transfer-encoding", [])):
                return
            body = stream.read(int(headers.get("content-length", ["0"])[0])).decode("latin-1")
            received = {"method": line[0], "path": line[1], "headers": headers, "body": body}
            text = json.dumps(received).encode()
            close = line[2] == "HTTP/1.0" or "close" in "".join(headers.get("connection", []))
            head = (f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Stub: {address}:{port}\r\n"
                    f"Content-Length: {len(text)}\r\nConnection: {'close' if close else 'keep-alive'}\r\n\r\n")
            connection.sendall(head.encode() + (b"" if line[0] == "HEAD" else text))
            if close:
                return
    except (OSError, ValueError):
        pass
    finally:
        connection.close()


def answer_fastcgi(connection):
    """Replies to a FastCGI request with a header field that identifies it (FastCGI specification, section 5)."""
    connection.recv(65536)
    text = f"X-Stub: {FASTCGI}\r\n\r\n".encode()
    stdout = struct.pack(">BBHHBB", 1, 6, 1, len(text), 0, 0) + text
    connection.sendall(stdout + struct.pack(">BBHHBB", 1, 6, 1, 0, 0, 0) + struct.pack(">BBHHBBQ", 1, 3, 1, 8, 0, 0, 0))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(65536)


def serve_dns(names):
    """Replies to DNS queries for addresses (RFC 1035)."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    names = {name.lower(): address for name, address in names.items()}
    while True:
        query, client = server.recvfrom(4096)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
            at += 1 + query[at]
        (kind,) = struct.unpack(">H", query[at + 1:at + 3])
        address = names.get(".".join(labels).lower())
        record = b""
        if address and kind == 1:
            record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(address)
        flags = 0x8180 if address else 0x8183
        head = query[:2] + struct.pack(">HHHHH", flags, 1, 1 if record else 0, 0, 0)
        server.sendto(head + query[12:at + 5] + record, client)


if __name__ == "__main__":
    sys.exit(main())
