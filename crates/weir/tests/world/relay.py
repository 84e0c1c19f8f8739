"""Forwards frames between two devices, delays each frame and drops some.

Arguments: both devices, the delay in seconds, and the number of frames per 1000 to drop. The random numbers are the
same in each run, so the same frames are dropped if they arrive in the same order.
"""
import heapq
import random
import select
import socket
import sys
import time

ETH_P_ALL = 3
PACKET_OUTGOING = 4
SO_RCVBUFFORCE = 33
devices = []
for name in sys.argv[1:3]:
    device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    device.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    device.bind((name, 0))
    devices.append(device)
delay, drop_share = float(sys.argv[3]), int(sys.argv[4]) / 1000
generator = random.Random(1)
waiting, sequence = [], 0
print("ready", flush=True)
while True:
    pause = max(0, waiting[0][0] - time.monotonic()) if waiting else None
    for device in select.select(devices, [], [], pause)[0]:
        frame, origin = device.recvfrom(65536)
        if origin[2] != PACKET_OUTGOING and generator.random() >= drop_share:
            sequence += 1
            other = devices[1 - devices.index(device)]
            heapq.heappush(waiting, (time.monotonic() + delay, sequence, other, frame))
    while waiting and waiting[0][0] <= time.monotonic():
        _, _, other, frame = heapq.heappop(waiting)
        try:
            other.send(frame)
        except OSError:
            pass
