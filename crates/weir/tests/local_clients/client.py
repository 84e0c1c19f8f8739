"""A client in a cgroup: runs the orders of its standard input, one a line, and answers each with a line of JSON."""
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
held = []


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def tcp(address, port):
    client = socket.socket(family(address), socket.SOCK_STREAM)
    client.settimeout(5)
    client.connect((address, port))
    return client


def answer(order, address="", port=0):
    port = int(port)
    if order == "hold":
        client = tcp(address, port)
        held.append(client)
        return [client.recv(100).decode(), client.getpeername()[:2]]
    if order == "get":
        with tcp(address, port) as client:
            return [client.recv(100).decode(), client.getpeername()[:2]]
    if order == "connected":
        client = socket.socket(family(address), socket.SOCK_DGRAM)
        client.settimeout(5)
        client.connect((address, port))
        client.send(b"x")
        held.append(client)
        data, source = client.recvfrom(100)
        return [data.decode(), source[:2], client.getpeername()[:2]]
    if order == "unconnected":
        client = socket.socket(family(address), socket.SOCK_DGRAM)
        client.settimeout(5)
        held.append(client)
        client.sendto(b"x", (address, port))
        data, source = client.recvfrom(100)
        return [data.decode(), source[:2]]
    if order == "again":
        held[-1].sendto(b"x", (address, port))
        data, source = held[-1].recvfrom(100)
        return [data.decode(), source[:2]]
    if order == "receive":
        return [held[-1].recv(100).decode()]
    if order == "send":
        held[-1].send(b"x")
        return [held[-1].recv(100).decode()]
    if order == "close":
        while held:
            held.pop().close()
        return []
    if order == "load":
        failed, done, names, end = 0, 0, {}, time.time() + 300
        while time.time() < end and not os.path.exists(CGROUP_STOP):
            try:
                name = answer("get", address, port)[0]
                names[name] = names.get(name, 0) + 1
            except OSError:
                failed += 1
            done += 1
        return [failed, done, names]
    raise ValueError(order)


CGROUP_STOP = sys.argv[2] if len(sys.argv) > 2 else "/nonexistent"
for line in sys.stdin:
    try:
        result = answer(*line.split())
    except OSError as error:
        result = {"error": errno.errorcode.get(error.errno, str(error))}
    print(json.dumps(result), flush=True)
