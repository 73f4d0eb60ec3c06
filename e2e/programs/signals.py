"""Counts the signals it gets until SIGUSR2; then says how many there were of each."""

import signal

COUNTED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
counts = {number: 0 for number in (*COUNTED, signal.SIGUSR2)}


def count(number, _frame):
    counts[number] += 1


for number in counts:
    signal.signal(number, count)
print("ready", flush=True)
while counts[signal.SIGUSR2] == 0:
    signal.pause()
print(*(counts[number] for number in COUNTED), flush=True)
