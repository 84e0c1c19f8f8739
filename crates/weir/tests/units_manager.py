"""A service manager for tests: starts one process at a time, and stores the descriptors that it sends (sd_notify(3)).

Orders are lines of standard input: `start COMMAND…`, `stop` (SIGTERM), `kill` (SIGKILL). After each order, a line on
standard output: the process ID, or how the process ended. Arguments: the path of the notification socket, and the log.
"""
import array
import fcntl
import os
import signal
import socket
import sys
import threading

path, log = sys.argv[1:]
stored = []
lock = threading.Lock()


def receive(notifications):
    size = socket.CMSG_SPACE(16 * array.array("i").itemsize)
    while True:
        text, control, _, _ = notifications.recvmsg(4096, size)
        lines = text.decode().split("\n")
        name = next((line[7:] for line in lines if line.startswith("FDNAME=")), "unknown")
        with lock:
            if "FDSTOREREMOVE=1" in lines:
                for one in [one for one in stored if one[0] == name]:
                    stored.remove(one)
                    os.close(one[1])
            for level, kind, data in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    numbers = array.array("i", data[: len(data) // 4 * 4])
                    stored.extend((name, number) for number in numbers)


def run(command):
    environment = dict(os.environ, NOTIFY_SOCKET=path, LISTEN_PID=str(os.getpid()))
    environment["LISTEN_FDS"] = str(len(stored))
    environment["LISTEN_FDNAMES"] = ":".join(name for name, _ in stored)
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, 1000) for _, number in stored]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 1000)
    for at, number in enumerate(high):
        os.dup2(number, 3 + at)
        os.close(number)
    os.execvpe(command[0], command, environment)


notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notifications.bind(path)
os.chmod(path, 0o666)
threading.Thread(target=receive, args=(notifications,), daemon=True).start()
child = None
for line in sys.stdin:
    order, *command = line.split()
    if order == "start":
        with lock:
            child = os.fork()
            if child == 0:
                run(command)
        print(child, flush=True)
        continue
    os.kill(child, signal.SIGTERM if order == "stop" else signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
if child is not None:
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
