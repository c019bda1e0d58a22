"""What a person would see on a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import termios


def on_a_terminal(*command, columns=80, **environment):
    """What the command prints on a terminal of so many columns, with 256 colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "COLORTERM": "",
           "NO_COLOR": "", **environment}
    process = subprocess.Popen(command, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    out = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not block:
            break
        out += block
    os.close(master)
    assert process.wait() == 0, out
    return out.decode().replace("\r\n", "\n")
