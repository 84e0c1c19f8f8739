"""A service manager for tests: starts one process at a time, and stores the descriptors that it sends (sd_notify(3)).

Requests are lines on standard input: `start COMMAND…`, `stop` (SIGTERM), `kill` (SIGKILL). The reply to each is a line
on standard output: the process ID, or the exit code (negative: a signal). Arguments: the path of the notification
socket, and that of the log.
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
                for entry in [entry for entry in stored if entry[0] == name]:
                    stored.remove(entry)
                    os.close(entry[1])
            for level, kind, data in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    numbers = array.array("i", data[: len(data) // 4 * 4])
                    stored.extend((name, number) for number in numbers)


def run(command):
    environment = dict(os.environ, NOTIFY_SOCKET=path, LISTEN_PID=str(os.getpid()))
    environment["LISTEN_FDS"] = str(len(stored))
    environment["LISTEN_FDNAMES"] = ":".join(name for name, _ in stored)
    duplicates = [fcntl.fcntl(number, fcntl.F_DUPFD, 1000) for _, number in stored]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 1000)
    for index, number in enumerate(duplicates):
        os.dup2(number, 3 + index)
        os.close(number)
    os.execvpe(command[0], command, environment)


notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notifications.bind(path)
os.chmod(path, 0o666)
threading.Thread(target=receive, args=(notifications,), daemon=True).start()
child = None
for line in sys.stdin:
    request, *command = line.split()
    if request == "start":
        with lock:
            child = os.fork()
            if child == 0:
                run(command)
        print(child, flush=True)
        continue
    os.kill(child, signal.SIGTERM if request == "stop" else signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
if child is not None:
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
