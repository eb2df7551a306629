"""Guards of a run on several hosts: if a process is lost, all processes end and name it.

Each process of the run is the child of a guard. The guard starts the command as its child process
and observes how the child ends. A guard uses neither JAX nor the devices, so a hanging collective
or an abort inside JAX does not stop it. Every guard is connected to the guard of process 0, the
hub. The hub decides which process ended first, and informs all guards.

The coordination service of JAX (0.10 and 0.12) does not replace guards. It ends the other processes
100 seconds after one was killed or hangs, and 300 seconds after one raised an error. All processes
abort with exit code 134, even the one with the error, and no host is named. So a launcher could not
distinguish an error, which ends the run, from a loss, after which the run resumes.
"""

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import Any, NamedTuple

from xlj.io.own_process import CONTINUE

SILENCE = 30.0
"""Number of seconds without a message after which a guard and its host count as lost."""

_VARIABLE = "XLJ_GUARD"  # environment variable with which a guard passes its address to the child
_BEAT = 2.0  # seconds between heartbeats
_GRACE = 5.0  # seconds that a child gets to end after another process has ended
# If the end of one process may be the consequence of an earlier end of another process, the hub
# waits this number of seconds for the report of the earlier end.
_LATER = 3.0
# Exit codes of a process that ends because another process is lost: an error, or JAX's abort.
_CONSEQUENCES = (1, -signal.SIGABRT)


class End(NamedTuple):
    """How a process of the run ended."""

    process: int
    """Number of the process."""
    host: str
    """Name of its host."""
    how: str
    """The verb phrase of the message, such as `was killed by SIGKILL`."""
    code: int
    """The exit code with which the run ends."""


def is_watched() -> bool:
    """Returns whether a guard started this process."""
    return _VARIABLE in os.environ


def own_address() -> tuple[list[str], int, str]:
    """Returns the address of this process's guard.

    Returns:
      Names and IP addresses of the host, the guard's port, and the token that other guards must
      send when they connect.
    """
    _, port, token = os.environ[_VARIABLE].split(",")
    names = [socket.gethostname()]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # For UDP, `connect` sends nothing. It only selects the address of this host.
        probe.connect(("10.255.255.255", 9))
        names.append(probe.getsockname()[0])
    return [*names, "127.0.0.1"], int(port), token


def report(process: int, processes: int, address: tuple[list[str], int, str]) -> None:
    """Tells this process's guard to connect to the hub.

    Args:
      process: number of this process.
      processes: number of processes.
      address: of the guard of process 0, as `own_address` returns it there.
    """
    pipe = int(os.environ[_VARIABLE].partition(",")[0])
    message = {"process": process, "processes": processes, "address": address}
    os.write(pipe, json.dumps(message).encode() + b"\n")


def run() -> int:
    """Starts this command as a child process, waits for its end, and returns the exit code."""
    return _Guard().watch()


class _Peer:
    """A connection to another guard. Messages are lines of JSON.

    Attributes:
      process: number of the guard's process; -1 until the guard has sent its number.
      host: name of its host.
      last_message: time of the last message, by `time.monotonic`.
      has_ended: whether the guard's process has ended, or the guard is lost.
      has_left: whether the connection is closed.
    """

    def __init__(self, link: socket.socket):
        self.link, self.process, self.host = link, -1, ""
        self.last_message, self.has_ended, self.has_left = time.monotonic(), False, False
        self._unread = b""

    def send(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # the connection is closed; `receive` will return None
            self.link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """Returns the messages that arrived; None if the connection is closed."""
        try:
            received = self.link.recv(1 << 16)
        except OSError:
            return None
        if not received:
            return None
        self.last_message = time.monotonic()
        *lines, self._unread = (self._unread + received).split(b"\n")
        try:
            return [json.loads(line) for line in lines]
        except ValueError:  # the other program is not a guard
            return None


class _Guard:
    """A guard. The guard of process 0 is the hub."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("", 0), backlog=4096)
        self._token, self._host = secrets.token_hex(8), socket.gethostname()
        self._pipe, end_of_child = os.pipe()
        port = self._listener.getsockname()[1]
        environment = {**os.environ, _VARIABLE: f"{end_of_child},{port},{self._token}"}
        command = [sys.executable, *sys.orig_argv[1:]]
        self._child = subprocess.Popen(command, env=environment, pass_fds=(end_of_child,))
        os.close(end_of_child)
        self._process, self._processes = -1, 0
        self._hub: _Peer | None = None
        self._peers: list[_Peer] = []  # in the hub: all other guards
        # In the hub: the time until which to wait, and an end that another end may have caused.
        self._doubtful: tuple[float, End] | None = None
        self._verdict: End | None = None
        self._last_beat = time.monotonic()

    def watch(self) -> int:
        """Watches the child until it ends, and returns the exit code of the guard."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        self._selector.register(self._pipe, selectors.EVENT_READ, self._join)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        code = None
        while code is None and self._verdict is None:
            self._poll()
            code = self._child.poll()
        if code is None:
            code = self._wait_or_kill(_GRACE)
        elif code in (0, CONTINUE):
            for peer in self._links():
                peer.send(end=None)
        else:
            self._await_verdict(code)
        outcome = self._outcome(code)
        self._disconnect()
        return outcome

    def _pass_on(self, number: int, _: Any) -> None:
        # A terminal sends Ctrl-C to the child too, so only SIGTERM is passed on.
        if number == signal.SIGTERM:
            self._child.send_signal(number)

    def _poll(self) -> None:
        """Handles messages for at most 0.2 seconds, sends heartbeats, and detects lost guards."""
        for key, _ in self._selector.select(0.2):
            key.data()
        now = time.monotonic()
        if now - self._last_beat > _BEAT:
            self._last_beat = now
            for peer in self._links():
                peer.send()
        for peer in self._links():
            if now - peer.last_message > SILENCE and not peer.has_ended:
                self._lose(peer, f"has not answered for {SILENCE:.0f} seconds")
        # A guard that has missed heartbeats may be lost. Its end may be the first one, so the hub
        # does not decide yet.
        is_silent = any(now - p.last_message > 3 * _BEAT and not p.has_ended for p in self._peers)
        if self._doubtful and now > self._doubtful[0] and not is_silent:
            self._decide(self._doubtful[1])

    def _links(self) -> list[_Peer]:
        """Returns the connections of this guard: in the hub to all guards, else to the hub."""
        return [*self._peers, *([self._hub] if self._hub else [])]

    def _join(self) -> None:
        """Reads the message of the child (`report`), and connects to the hub."""
        line = os.read(self._pipe, 1 << 16)
        self._selector.unregister(self._pipe)
        if not line:
            return
        message = json.loads(line)
        self._process, self._processes = message["process"], message["processes"]
        if self._process:
            names, port, token = message["address"]
            link = _connect(names, port)
            if link is None:
                print(
                    f"no guard answers at port {port} of {' or '.join(names)}; check that hosts "
                    "may connect to each other. If a process of this run is lost, only JAX will "
                    "report the loss, after some minutes",
                    file=sys.stderr,
                    flush=True,
                )
                return
            self._hub = _Peer(link)
            self._hub.process, self._hub.host = 0, names[0]
            self._hub.send(process=self._process, host=self._host, token=token)
            self._listen_to(self._hub)

    def _accept(self) -> None:
        """Accepts a connection of another guard."""
        link, _ = self._listener.accept()
        self._listen_to(_Peer(link))

    def _listen_to(self, peer: _Peer) -> None:
        self._selector.register(peer.link, selectors.EVENT_READ, lambda: self._handle(peer))

    def _handle(self, peer: _Peer) -> None:
        messages = peer.receive()
        if messages is None:
            self._selector.unregister(peer.link)
            if not peer.has_ended and peer.process >= 0:
                self._lose(peer, "is gone")
            peer.has_ended = peer.has_left = True
            return
        for message in messages:
            if message.get("token") == self._token:
                peer.process, peer.host = message["process"], message["host"]
                self._peers.append(peer)
            elif peer.process >= 0 and "end" in message:
                peer.has_ended = True
                if message["end"]:
                    self._judge(End(*message["end"]), message["code"])
            elif peer is self._hub and "verdict" in message:
                self._verdict = End(*message["verdict"])

    def _lose(self, peer: _Peer, how: str) -> None:
        peer.has_ended = True
        self._decide(End(peer.process, peer.host, how, CONTINUE))

    def _judge(self, end: End, code: int) -> None:
        """Decides about the end of a process, in the hub.

        If another end may have caused this end, the decision waits for `_LATER` seconds.

        Args:
          code: exit code of the process; minus the number of the signal that killed it.
        """
        if code not in _CONSEQUENCES:
            self._decide(end)
        elif not self._doubtful:
            self._doubtful = time.monotonic() + _LATER, end

    def _decide(self, end: End) -> None:
        """Decides that this end came first, and informs all guards (in the hub)."""
        if self._verdict is None:
            self._verdict = end
            for peer in self._peers:
                peer.send(verdict=end)

    def _wait_or_kill(self, seconds: float) -> int:
        """Waits for the child, kills it after `seconds`, and returns its exit code."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def _await_verdict(self, code: int) -> None:
        """Reports the end of the child to the hub, and waits for the hub's decision.

        Args:
          code: exit code of the child; minus the number of the signal that killed it.
        """
        signalled = code < 0 and -code != signal.SIGABRT
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        end = End(self._process, self._host, how, CONTINUE if signalled else abs(code))
        if not self._processes:  # the child never joined the other processes
            return
        if self._process == 0:
            self._judge(end, code)
        elif self._hub is None or self._hub.has_ended:
            return
        else:
            self._hub.send(end=end, code=code)
        deadline = time.monotonic() + SILENCE + 2 * _LATER
        while self._verdict is None and time.monotonic() < deadline:
            self._poll()

    def _disconnect(self) -> None:
        """Closes the connections after the other guards have read all messages.

        A connection that is closed while it has unread input may lose its last messages.
        """
        for peer in self._links():
            with contextlib.suppress(OSError):
                peer.link.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline and any(not peer.has_left for peer in self._links()):
            self._poll()

    def _outcome(self, code: int) -> int:
        """Returns the exit code of this guard, and prints which process ended first, if another
        did.

        Args:
          code: exit code of the child; minus the number of the signal that killed it.
        """
        end = self._verdict
        if end is None or not self._processes:
            return 128 - code if code < 0 else code
        if (end.process != self._process or end.code == CONTINUE) and code != end.code:
            again = "; the same command resumes from the last checkpoint"
            print(  # the message begins with a line break, since the line may have a progress bar
                f"\nerror: process {end.process} of {self._processes} (host {end.host}) {end.how}: "
                f"the run ends here, with exit code {end.code}"
                f"{again if end.code == CONTINUE else ''}",
                file=sys.stderr,
                flush=True,
            )
        return end.code


def _connect(names: list[str], port: int) -> socket.socket | None:
    """Returns a connection to the first host that answers, or None if no host answers."""
    for name in names:
        with contextlib.suppress(OSError):
            link = socket.create_connection((name, port), timeout=5)
            link.settimeout(None)
            return link
    return None
