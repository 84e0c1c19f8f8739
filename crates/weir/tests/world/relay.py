"""Passes frames between two devices, each after a delay, and loses some.

Arguments: both devices, the delay in seconds, and how many of 1000 frames are lost. The same frames are lost in each
run, as far as their order is the same.
"""
import heapq
import random
import select
import socket
import sys
import time

ALL = 3
OUTGOING = 4
BUFFER_FORCE = 33
devices = []
for name in sys.argv[1:3]:
    device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    device.setsockopt(socket.SOL_SOCKET, BUFFER_FORCE, 16 << 20)
    device.bind((name, 0))
    devices.append(device)
delay, lost = float(sys.argv[3]), int(sys.argv[4]) / 1000
chance = random.Random(1)
waiting, number = [], 0
print("ready", flush=True)
while True:
    pause = max(0, waiting[0][0] - time.monotonic()) if waiting else None
    for device in select.select(devices, [], [], pause)[0]:
        frame, origin = device.recvfrom(65536)
        if origin[2] != OUTGOING and chance.random() >= lost:
            number += 1
            other = devices[1 - devices.index(device)]
            heapq.heappush(waiting, (time.monotonic() + delay, number, other, frame))
    while waiting and waiting[0][0] <= time.monotonic():
        _, _, other, frame = heapq.heappop(waiting)
        try:
            other.send(frame)
        except OSError:
            pass
