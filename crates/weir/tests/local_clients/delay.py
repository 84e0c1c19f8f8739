"""Passes frames between two devices, each after a delay. Arguments: both devices, the delay in seconds."""
import heapq
import select
import socket
import sys
import time

ALL = 3
OUTGOING = 4
devices = []
for name in sys.argv[1:3]:
    device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    device.bind((name, 0))
    devices.append(device)
delay = float(sys.argv[3])
waiting, number = [], 0
print("ready", flush=True)
while True:
    pause = max(0, waiting[0][0] - time.monotonic()) if waiting else None
    for device in select.select(devices, [], [], pause)[0]:
        frame, origin = device.recvfrom(65536)
        if origin[2] != OUTGOING:
            number += 1
            other = devices[1 - devices.index(device)]
            heapq.heappush(waiting, (time.monotonic() + delay, number, other, frame))
    while waiting and waiting[0][0] <= time.monotonic():
        _, _, other, frame = heapq.heappop(waiting)
        try:
            other.send(frame)
        except OSError:
            pass
