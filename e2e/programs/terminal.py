"""A shell on a terminal of its own: Ctrl-Z and Ctrl-C for a program behind `kakehi run`.

KAKEHI is the command. With an argument: that program.
"""

import os
import pty
import select
import signal
import sys
import time

TIME_MAX = 60


def program():
    signal.signal(signal.SIGINT, lambda *_: print("INT", flush=True))
    signal.signal(signal.SIGCONT, lambda *_: print("CONT", flush=True))
    signal.signal(signal.SIGQUIT, lambda *_: sys.exit(5))
    print("ready", flush=True)
    while True:
        time.sleep(0.05)


def shell():
    child, terminal = pty.fork()
    if child == 0:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    seen = ""

    def enter(text):
        os.write(terminal, text.encode())

    def read(seconds):
        nonlocal seen
        if select.select([terminal], [], [], seconds)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")

    def expect(text):
        nonlocal seen
        end = time.monotonic() + TIME_MAX
        while text not in seen:
            if time.monotonic() > end:
                sys.exit(f"no {text!r} in {seen!r}")
            read(1)
        seen = seen.partition(text)[2]

    def listen():
        end = time.monotonic() + 1
        while time.monotonic() < end:
            read(0.1)

    enter("PS1=; stty -echo; echo shell $((40 + 2))\n")
    expect("shell 42")
    enter(f"$KAKEHI run -- {sys.executable} {sys.argv[0]} program </dev/null\n")
    expect("ready")
    enter("\x1a")
    enter("echo back $((40 + 2))\n")
    expect("back 42")
    enter("fg\n")
    expect("CONT")
    enter("\x03")
    expect("INT")
    listen()
    if "INT" in seen:
        sys.exit(f"another SIGINT: {seen!r}")
    enter("\x1a")
    enter("echo again $((40 + 2))\n")
    expect("again 42")
    enter("fg; echo code $?\n")
    expect("CONT")
    enter("\x1c")
    expect("code 5")
    enter("exit\n")
    os.waitpid(child, 0)


program() if sys.argv[1:] else shell()
