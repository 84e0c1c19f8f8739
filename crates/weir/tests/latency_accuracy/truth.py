"""Measures a server's latency at its own interface: from the last packet of a request to the first payload of the
response.

Arguments: the port; the minimum payload of a response in bytes, so that session tickets are not counted; the number of
exchanges to skip at the start of a connection; payload lengths that are not requests, such as that of HTTP/2's SETTINGS
acknowledgement. A retransmitted payload is not part of a request. Prints JSON when standard input ends. Uses the
kernel's timestamps.
"""
import json
import select
import socket
import struct
import sys

PORT, MIN_PAYLOAD, SKIPPED = (int(word) for word in sys.argv[1:4])
IGNORED = {int(word) for word in sys.argv[4:]}
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
PACKET_OUTGOING = 4

sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
sniffer.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
sniffer.bind(("eth0", 0))
print("ready", flush=True)

flows = {}
samples = []


def receive(ranges, start, end):
    """Adds a range of received sequence numbers; returns whether it contains new ones."""
    if any(low <= start and end <= high for low, high in ranges):
        return False
    adjacent = [(low, high) for low, high in ranges if low <= end and start <= high]
    for old in adjacent:
        ranges.remove(old)
    ranges.append((min([start] + [low for low, _ in adjacent]), max([end] + [high for _, high in adjacent])))
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
        # Time of the last request packet, number of exchanges, received ranges, first sequence number.
        flows[key] = [None, 0, [], sequence]
    flow = flows.get(key)
    if flow is None or payload <= 0:
        return
    if not outgoing:
        start = (sequence - flow[3]) % 2**32
        if receive(flow[2], start, start + payload) and payload not in IGNORED:
            flow[0] = now
    elif flow[0] is not None and payload >= MIN_PAYLOAD:
        flow[1] += 1
        if flow[1] > SKIPPED:
            samples.append(now - flow[0])
        flow[0] = None


while True:
    ready = select.select([sniffer, sys.stdin], [], [])[0]
    if sniffer in ready:
        frame, ancillary, _, address = sniffer.recvmsg(128, 64)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack("qq", data[:16])
                handle(frame, address[2] == PACKET_OUTGOING, seconds * 10**9 + nanoseconds)
    elif sys.stdin in ready:
        break
samples.sort()
percentile_ms = lambda share: samples[min(len(samples) - 1, int(share * len(samples)))] / 1e6 if samples else 0
mean = sum(samples) / max(1, len(samples)) / 1e6
percentiles = {name: percentile_ms(share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
print(json.dumps({"mean": mean, **percentiles, "samples": len(samples)}), flush=True)
