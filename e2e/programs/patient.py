"""Writes files, waits for a line between the steps, and says what the last ones come to, and
how many milliseconds of CPU time it took to wait.

    patient.py FOLDER FILES
"""
import errno
import os
import sys
import threading
import time


def step(name):
    print(name, flush=True)
    sys.stdin.readline()


def outcome(call, *arguments):
    try:
        call(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


os.chdir(sys.argv[1])
fds = [os.open(str(number), os.O_WRONLY | os.O_CREAT) for number in range(int(sys.argv[2]))]
for fd in fds:
    os.write(fd, b"first ")
    os.fsync(fd)
step("begun")
for fd in fds:
    os.write(fd, b"second")
step("staged")
synced = {}
cpu_before = time.process_time()
threads = [threading.Thread(target=lambda fd=fd: synced.update({fd: outcome(os.fsync, fd)})) for fd in fds]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
cpu_ms = round(1000 * (time.process_time() - cpu_before))
print(*sorted(set(synced.values())))
print(*sorted({outcome(os.write, fd, b"third") for fd in fds}))
print(*sorted({outcome(os.close, fd) for fd in fds}))
print(cpu_ms)
