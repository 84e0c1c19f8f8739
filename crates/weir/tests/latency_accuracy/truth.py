"""The latency of a server as its own interface shows it: last packet of a request in, first payload of the answer out.

Arguments: the port; the least payload of an answer, so that session tickets do not count; how many exchanges at the
start of a connection are left out; lengths of payloads that ask for nothing, as the SETTINGS acknowledgement of HTTP/2.
Payload that arrived before is not part of a request. Prints JSON when its standard input ends. Times are those of the
kernel.
"""
import json
import select
import socket
import struct
import sys

PORT, LEAST, SKIPPED = (int(word) for word in sys.argv[1:4])
IGNORED = {int(word) for word in sys.argv[4:]}
TIMESTAMP = 35
BUFFER_FORCE = 33
OUTGOING = 4

sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
sniffer.setsockopt(socket.SOL_SOCKET, BUFFER_FORCE, 256 << 20)
sniffer.setsockopt(socket.SOL_SOCKET, TIMESTAMP, 1)
sniffer.bind(("eth0", 0))
print("ready", flush=True)

flows = {}
samples = []


def receive(ranges, start, end):
    """Adds to the ranges of received sequence numbers; whether something is new."""
    if any(low <= start and end <= high for low, high in ranges):
        return False
    near = [(low, high) for low, high in ranges if low <= end and start <= high]
    for joined in near:
        ranges.remove(joined)
    ranges.append((min([start] + [low for low, _ in near]), max([end] + [high for _, high in near])))
    return True


def handle(frame, outgoing, now):
    if frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return
    header = 14 + (frame[14] & 15) * 4
    length = struct.unpack("!H", frame[16:18])[0]
    source, target = struct.unpack("!HH", frame[header:header + 4])
    flags = frame[header + 13]
    payload = length - (frame[14] & 15) * 4 - (frame[header + 12] >> 4) * 4
    if (source if outgoing else target) != PORT:
        return
    key = frame[30:34] + frame[header + 2:header + 4] if outgoing else frame[26:30] + frame[header:header + 2]
    sequence = struct.unpack("!I", frame[header + 4:header + 8])[0]
    if flags & 2 and not outgoing:
        # The request, the number of exchanges, what was received, the first sequence number.
        flows[key] = [None, 0, [], sequence]
    flow = flows.get(key)
    if flow is None or payload <= 0:
        return
    if not outgoing:
        start = (sequence - flow[3]) % 2**32
        if receive(flow[2], start, start + payload) and payload not in IGNORED:
            flow[0] = now
    elif flow[0] is not None and payload >= LEAST:
        flow[1] += 1
        if flow[1] > SKIPPED:
            samples.append(now - flow[0])
        flow[0] = None


while True:
    ready = select.select([sniffer, sys.stdin], [], [])[0]
    if sniffer in ready:
        frame, extra, _, address = sniffer.recvmsg(128, 64)
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == TIMESTAMP:
                seconds, nanoseconds = struct.unpack("qq", data[:16])
                handle(frame, address[2] == OUTGOING, seconds * 10**9 + nanoseconds)
    elif sys.stdin in ready:
        break
samples.sort()
at = lambda share: samples[min(len(samples) - 1, int(share * len(samples)))] / 1e6 if samples else 0
mean = sum(samples) / max(1, len(samples)) / 1e6
print(json.dumps({"mean": mean, "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "samples": len(samples)}), flush=True)
