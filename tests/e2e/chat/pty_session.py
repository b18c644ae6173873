"""A program behind a pseudo-terminal: types into it, reads what it draws, with a time limit on every wait."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time


# Programs that are watched by sanitizers are several times slower.
PATIENCE = 6 if os.environ.get("ISTHMUS_SANITIZED") else 1


class PtyError(AssertionError):
    """The program did not show what was waited for; carries what it did show."""


class Pty:
    """One program on a terminal of its own. Everything that it wrote is in `seen`, as bytes."""

    def __init__(self, command, env=None, rows=24, columns=80):
        self.seen = b""
        self.at = 0  # up to here expect() has read
        self.status = None
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, {**os.environ, **(env or {})})
        self.resize(rows, columns)

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        """Types; long text is written piece by piece while the output is read, so that neither side blocks."""
        data = text if isinstance(text, bytes) else text.encode()
        while data:
            self._read(0)
            data = data[os.write(self.terminal, data[:512]):]

    def line(self, text):
        self.send(text + "\r")

    def signal(self, number):
        os.kill(self.pid, number)

    def _read(self, seconds):
        """Reads what is there; False at the end of the output."""
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        if not ready:
            return True
        try:
            piece = os.read(self.terminal, 65536)
        except OSError:  # Linux says EIO when the program's side is closed
            return False
        self.seen += piece
        return bool(piece)

    def expect(self, pattern, seconds=30):
        """Waits for a match of `pattern` behind the last one; returns the match."""
        compiled = re.compile(pattern.encode() if isinstance(pattern, str) else pattern, re.DOTALL)
        end = time.monotonic() + seconds * PATIENCE
        while True:
            found = compiled.search(self.seen, self.at)
            if found:
                self.at = found.end()
                return found
            left = end - time.monotonic()
            if left <= 0 or not self._read(left):
                raise PtyError(f"no {pattern!r} in {self.seen[self.at:][-1500:]!r}")

    def unread(self, seconds=0.3):
        """What came behind the last match, after a pause."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._read(end - time.monotonic()):
            pass
        rest, self.at = self.seen[self.at:], len(self.seen)
        return rest

    def modes(self):
        """Whether the terminal echoes and reads by lines: (echo, canonical)."""
        flags = termios.tcgetattr(self.terminal)[3]
        return bool(flags & termios.ECHO), bool(flags & termios.ICANON)

    def wait(self, seconds=20):
        """The exit code, negative for a signal; kills a program that does not end."""
        end = time.monotonic() + seconds * PATIENCE
        while self.status is None and time.monotonic() < end:
            self._read(0.05)
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.status = -signal.SIGKILL
            raise PtyError(f"did not end; the last it wrote is {self.seen[-500:]!r}")
        return self.status

    def close(self):
        if self.status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        os.close(self.terminal)
