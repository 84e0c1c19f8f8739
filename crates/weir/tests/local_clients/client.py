"""A client in a cgroup. Executes the commands on standard input, one per line, and replies to each with a line of JSON.

Arguments: the cgroup, or `-` to stay in the current one; a file whose existence ends the command `load`.
"""
import errno
import json
import os
import socket
import sys
import time

CGROUP = sys.argv[1]
if CGROUP != "-":
    with open(CGROUP + "/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
open_sockets = []


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def connect_tcp(address, port):
    client = socket.socket(family(address), socket.SOCK_STREAM)
    client.settimeout(5)
    client.connect((address, port))
    return client


def execute(command, address="", port=0):
    port = int(port)
    if command == "hold":
        client = connect_tcp(address, port)
        open_sockets.append(client)
        return [client.recv(100).decode(), client.getpeername()[:2]]
    if command == "get":
        with connect_tcp(address, port) as client:
            return [client.recv(100).decode(), client.getpeername()[:2]]
    if command == "connected":
        client = socket.socket(family(address), socket.SOCK_DGRAM)
        client.settimeout(5)
        client.connect((address, port))
        client.send(b"x")
        open_sockets.append(client)
        data, source = client.recvfrom(100)
        return [data.decode(), source[:2], client.getpeername()[:2]]
    if command == "unconnected":
        client = socket.socket(family(address), socket.SOCK_DGRAM)
        client.settimeout(5)
        open_sockets.append(client)
        client.sendto(b"x", (address, port))
        data, source = client.recvfrom(100)
        return [data.decode(), source[:2]]
    if command == "again":
        open_sockets[-1].sendto(b"x", (address, port))
        data, source = open_sockets[-1].recvfrom(100)
        return [data.decode(), source[:2]]
    if command == "receive":
        return [open_sockets[-1].recv(100).decode()]
    if command == "send":
        open_sockets[-1].send(b"x")
        return [open_sockets[-1].recv(100).decode()]
    if command == "close":
        while open_sockets:
            open_sockets.pop().close()
        return []
    if command == "load":
        failed, total, names, end = 0, 0, {}, time.time() + 300
        while time.time() < end and not os.path.exists(STOP_FILE):
            try:
                name = execute("get", address, port)[0]
                names[name] = names.get(name, 0) + 1
            except OSError:
                failed += 1
            total += 1
        return [failed, total, names]
    raise ValueError(command)


STOP_FILE = sys.argv[2] if len(sys.argv) > 2 else "/nonexistent"
for line in sys.stdin:
    try:
        result = execute(*line.split())
    except OSError as error:
        result = {"error": errno.errorcode.get(error.errno, str(error))}
    print(json.dumps(result), flush=True)
