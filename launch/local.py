"""Starts a command of xlj as several processes of one run, on this machine.

    python launch/local.py -n 4 -- python -m xlj.train --config=configs/quickstart.py

Each process gets the flags --distributed, --coordinator, --processes and --process. If the machine
has GPUs, each process uses one GPU. Each output line begins with the number of its process, such as
`2: `. The exit code is 0 if no process fails. Otherwise it is that of the failed process with the
lowest number, or 128 + N if the signal N ended this process.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO


def main(argv: Sequence[str] | None = None) -> int:
    """Starts the processes and waits for all of them."""
    parser = argparse.ArgumentParser(usage=__doc__, allow_abbrev=False)
    parser.add_argument("-n", type=int, required=True, metavar="N", help="number of processes")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    flags = parser.parse_args(argv)
    command = flags.command[1:] if flags.command[:1] == ["--"] else flags.command
    if flags.n < 1 or not command:
        parser.error("expected -n N (1 or more), then -- and the command")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    started = [_start(command, coordinator, flags.n, process) for process in range(flags.n)]

    def forward_signal(number: int, _: Any) -> None:
        for child in started:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    signal.signal(signal.SIGTERM, forward_signal)
    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends SIGINT to all processes
    readers = [
        threading.Thread(target=_show, args=(process, child.stdout))
        for process, child in enumerate(started)
    ]
    for reader in readers:
        reader.start()
    codes = [child.wait() for child in started]
    for reader in readers:
        reader.join()
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def _start(
    command: Sequence[str], coordinator: str, processes: int, process: int
) -> subprocess.Popen:
    flags = [f"--coordinator={coordinator}", f"--processes={processes}", f"--process={process}"]
    environment = {"JAX_LOCAL_DEVICE_IDS": str(process), **os.environ}
    return subprocess.Popen(
        [*command, "--distributed", *flags],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


_WRITING = threading.Lock()


def _show(process: int, output: BinaryIO) -> None:
    """Prints the output of a process line by line."""
    for line in output:
        with _WRITING:
            sys.stdout.buffer.write(f"{process}: ".encode() + line)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main())
