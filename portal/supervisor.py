"""Starts processes, starts them again when they die, and ends them all. Standard library only."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
SETTLED_SECONDS = 30.0
GRACE_SECONDS = 10.0
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, even by kill -9. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Child:
    """One process to keep alive. `grace`: so many seconds it may take to end when it is asked to."""

    name: str
    command: tuple[str, ...]
    grace: float = GRACE_SECONDS
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause: float = SHORTEST_PAUSE
    due_at: float = 0.0

    def died(self, now: float) -> None:
        """Plan the next start: soon if it had lived long, later and later if it keeps dying."""
        settled = now - self.started_at > SETTLED_SECONDS
        self.pause = SHORTEST_PAUSE if settled else min(self.pause * 2, LONGEST_PAUSE)
        self.process, self.due_at = None, now + self.pause


class Supervisor:
    """Keeps children alive until it is told to stop. Each writes to `logs/<name>.log` and has its id in `pids/`."""

    def __init__(self, children: Iterable[Child], *, folder: Path, root: Path, say: Callable[[str], None]) -> None:
        self.children = list(children)
        self.root = root
        self.say = say
        self.logs, self.pids = folder / "logs", folder / "pids"
        for path in (self.logs, self.pids):
            path.mkdir(parents=True, exist_ok=True)

    def run(self, stop: threading.Event, *, url: str, ready: str) -> None:
        """Start what is due, until stopped; say `ready` when the URL answers 200 for the first time."""
        (self.pids / "demo.pid").write_text(str(os.getpid()))
        greeted = False
        try:
            while not stop.wait(0.2):
                self.look()
                if not greeted and answers(url):
                    greeted = True
                    self.say(ready)
        finally:
            self.end()

    def look(self) -> None:
        """Start what is due and notice what has died."""
        now = time.monotonic()
        for child in self.children:
            if child.process and child.process.poll() is not None:
                self.say(f"{child.name} ended with code {child.process.returncode}; see {self.logs / child.name}.log")
                child.died(now)
            if child.process is None and now >= child.due_at:
                self.start(child)

    def start(self, child: Child) -> None:
        """Start a child in a process group of its own, so that Ctrl-C reaches only this process."""
        with (self.logs / f"{child.name}.log").open("ab") as log:
            child.process = subprocess.Popen(
                child.command,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=end_with_parent,
            )
        child.started_at = time.monotonic()
        (self.pids / f"{child.name}.pid").write_text(str(child.process.pid))

    def end(self) -> None:
        """SIGTERM to every child, a moment of grace, SIGKILL to what is left of its group."""
        running = [(child.process, child.grace) for child in self.children if child.process]
        for process, _ in running:
            process.terminate()
        begun = time.monotonic()
        for process, grace in running:
            end_group(process, max(0.1, begun + grace - time.monotonic()))
        for file in self.pids.glob("*.pid"):
            file.unlink()


def end_group(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a process, then make sure that nothing of its group is left."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def answers(url: str) -> bool:
    """True if the URL answers 200 now."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - our own address
            return bool(response.status == 200)
    except OSError:
        return False
