"""A guard beside each process of a run on several hosts: when one is lost, all end, and say which.

A guard starts the command again as its child, and knows how that ends. It needs neither JAX nor the
devices, so that no collective that hangs, and no abort inside of JAX, stops it. Guards hold
connections to that of process 0, which tells all of them whose end came first.
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

from xlj.io.exit_codes import CONTINUE

SILENCE = 30.0
"""Seconds without a word after which a guard, with its host, is lost."""

_VARIABLE = "XLJ_GUARD"
_BEAT = 2.0  # seconds from one word to the next
_GRACE = 5.0  # seconds in which a child may end by itself, once another has
_LATER = 3.0  # seconds in which an end may turn out to come of another's
_CONSEQUENCES = (1, -signal.SIGABRT)  # how a process ends that loses another: an error, JAX's abort


class End(NamedTuple):
    """How a process of the run ended."""

    process: int
    host: str
    how: str
    code: int
    """The exit code that the run ends with."""


def is_watched() -> bool:
    """Whether a guard started this process."""
    return _VARIABLE in os.environ


def own_address() -> tuple[list[str], int, str]:
    """Under which names and port this process's guard can be reached, and a word that those who
    call it must know."""
    _, port, word = os.environ[_VARIABLE].split(",")
    names = [socket.gethostname()]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.255.255.255", 9))  # nothing is sent; it tells our address
        names.append(probe.getsockname()[0])
    return [*names, "127.0.0.1"], int(port), word


def report(process: int, processes: int, address: tuple[list[str], int, str]) -> None:
    """Tells this process's guard who it is, and where that of process 0 is (its `own_address`)."""
    pipe = int(os.environ[_VARIABLE].partition(",")[0])
    joined = {"process": process, "processes": processes, "address": address}
    os.write(pipe, json.dumps(joined).encode() + b"\n")


def run() -> int:
    """Starts this command again, watches it to its end, and returns the exit code."""
    return _Guard().watch()


class _Peer:
    """A connection to another guard: lines of JSON."""

    def __init__(self, link: socket.socket):
        self.link, self.process, self.host = link, -1, ""
        self.heard, self.has_ended, self.has_left = time.monotonic(), False, False
        self._unread = b""

    def say(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # it is gone, which reading tells
            self.link.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> list[dict[str, Any]] | None:
        """What came in; None if nothing will come any more."""
        try:
            found = self.link.recv(1 << 16)
        except OSError:
            return None
        if not found:
            return None
        self.heard = time.monotonic()
        *lines, self._unread = (self._unread + found).split(b"\n")
        try:
            return [json.loads(line) for line in lines]
        except ValueError:  # no guard speaks like that
            return None


class _Guard:
    """One guard; that of process 0 is the hub."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("", 0), backlog=4096)
        self._word, self._host = secrets.token_hex(8), socket.gethostname()
        self._pipe, wanted = os.pipe()
        port = self._listener.getsockname()[1]
        environment = {**os.environ, _VARIABLE: f"{wanted},{port},{self._word}"}
        command = [sys.executable, *sys.orig_argv[1:]]
        self._child = subprocess.Popen(command, env=environment, pass_fds=(wanted,))
        os.close(wanted)
        self._process, self._processes = -1, 0
        self._hub: _Peer | None = None
        self._peers: list[_Peer] = []  # of the hub: all others
        self._doubtful: tuple[float, End] | None = None  # of the hub: it may come of another's end
        self._verdict: End | None = None
        self._said = time.monotonic()

    def watch(self) -> int:
        """See `run`."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        self._selector.register(self._pipe, selectors.EVENT_READ, self._joined)
        self._selector.register(self._listener, selectors.EVENT_READ, self._called)
        code = None
        while code is None and self._verdict is None:
            self._turn()
            code = self._child.poll()
        if code is None:
            code = self._ended_within(_GRACE)
        elif code in (0, CONTINUE):
            for peer in self._links():
                peer.say(end=None)
        else:
            self._learn_why(code)
        outcome = self._outcome(code)
        self._take_leave()
        return outcome

    def _pass_on(self, number: int, _: Any) -> None:
        if number == signal.SIGTERM:  # a terminal sends Ctrl-C to the child, too
            self._child.send_signal(number)

    def _turn(self) -> None:
        """Waits for a moment, and takes what comes in."""
        for key, _ in self._selector.select(0.2):
            key.data()
        now = time.monotonic()
        if now - self._said > _BEAT:
            self._said = now
            for peer in self._links():
                peer.say()
        for peer in self._links():
            if now - peer.heard > SILENCE and not peer.has_ended:
                self._lost(peer, f"has not answered for {SILENCE:.0f} seconds")
        # Some guard may be lost, but is not yet known to be.
        is_silent = any(now - p.heard > 3 * _BEAT and not p.has_ended for p in self._peers)
        if self._doubtful and now > self._doubtful[0] and not is_silent:
            self._decide(self._doubtful[1])

    def _links(self) -> list[_Peer]:
        return [*self._peers, *([self._hub] if self._hub else [])]

    def _joined(self) -> None:
        """The child is one of several processes, and says which."""
        line = os.read(self._pipe, 1 << 16)
        self._selector.unregister(self._pipe)
        if not line:
            return
        told = json.loads(line)
        self._process, self._processes = told["process"], told["processes"]
        if self._process:
            names, port, word = told["address"]
            link = _connected(names, port)
            if link is None:
                print(
                    f"no guard answers at port {port} of {' or '.join(names)}: if a process of "
                    "this run is lost, only JAX will tell, in some minutes",
                    file=sys.stderr,
                    flush=True,
                )
                return
            self._hub = _Peer(link)
            self._hub.process, self._hub.host = 0, names[0]
            self._hub.say(process=self._process, host=self._host, word=word)
            self._listen_to(self._hub)

    def _called(self) -> None:
        """Another guard calls."""
        link, _ = self._listener.accept()
        self._listen_to(_Peer(link))

    def _listen_to(self, peer: _Peer) -> None:
        self._selector.register(peer.link, selectors.EVENT_READ, lambda: self._heard(peer))

    def _heard(self, peer: _Peer) -> None:
        messages = peer.hear()
        if messages is None:
            self._selector.unregister(peer.link)
            if not peer.has_ended and peer.process >= 0:
                self._lost(peer, "is gone")
            peer.has_ended = peer.has_left = True
            return
        for message in messages:
            if message.get("word") == self._word:
                peer.process, peer.host = message["process"], message["host"]
                self._peers.append(peer)
            elif peer.process >= 0 and "end" in message:
                peer.has_ended = True
                if message["end"]:
                    self._weigh(End(*message["end"]), message["code"])
            elif peer is self._hub and "verdict" in message:
                self._verdict = End(*message["verdict"])

    def _lost(self, peer: _Peer, how: str) -> None:
        peer.has_ended = True
        self._decide(End(peer.process, peer.host, how, CONTINUE))

    def _weigh(self, end: End, code: int) -> None:
        """Decides at once where an end cannot come of another's, else in a moment."""
        if code not in _CONSEQUENCES:
            self._decide(end)
        elif not self._doubtful:
            self._doubtful = time.monotonic() + _LATER, end

    def _decide(self, end: End) -> None:
        """Whose end came first; all hear of it."""
        if self._verdict is None:
            self._verdict = end
            for peer in self._peers:
                peer.say(verdict=end)

    def _ended_within(self, seconds: float) -> int:
        """The child's exit code; it is killed after so many seconds."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def _learn_why(self, code: int) -> None:
        """Tells of the child's end, and waits for word of whose came first."""
        signalled = code < 0 and -code != signal.SIGABRT
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        end = End(self._process, self._host, how, CONTINUE if signalled else abs(code))
        if not self._processes:  # it never joined the others
            return
        if self._process == 0:
            self._weigh(end, code)
        elif self._hub is None or self._hub.has_ended:
            return
        else:
            self._hub.say(end=end, code=code)
        latest = time.monotonic() + SILENCE + 2 * _LATER
        while self._verdict is None and time.monotonic() < latest:
            self._turn()

    def _take_leave(self) -> None:
        """Lets the others read what they were told: a connection that is closed with something
        unread in it may lose that."""
        for peer in self._links():
            with contextlib.suppress(OSError):
                peer.link.shutdown(socket.SHUT_WR)
        latest = time.monotonic() + 1
        while time.monotonic() < latest and any(not peer.has_left for peer in self._links()):
            self._turn()

    def _outcome(self, code: int) -> int:
        """The exit code of this process; says what it comes of, where that is another's end."""
        end = self._verdict
        if end is None or not self._processes:
            return 128 - code if code < 0 else code
        if (end.process != self._process or end.code == CONTINUE) and code != end.code:
            again = "; the same command goes on from the last checkpoint"
            print(  # on a line of its own, where the child left a bar
                f"\nerror: process {end.process} of {self._processes} (host {end.host}) {end.how}: "
                f"the run ends here, with exit code {end.code}"
                f"{again if end.code == CONTINUE else ''}",
                file=sys.stderr,
                flush=True,
            )
        return end.code


def _connected(names: list[str], port: int) -> socket.socket | None:
    """A connection to the first host that answers."""
    for name in names:
        with contextlib.suppress(OSError):
            link = socket.create_connection((name, port), timeout=5)
            link.settimeout(None)
            return link
    return None
