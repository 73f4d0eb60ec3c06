"""Takes a read lease on a file, says so, and gives it up a while after somebody wants the file.

    leased.py FILE
"""
import fcntl
import os
import signal
import sys
import time

fd = os.open(sys.argv[1], os.O_RDONLY)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
print("leased", flush=True)
signal.sigwait({signal.SIGIO})
time.sleep(0.3)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
