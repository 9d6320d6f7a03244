"""Start processes, restart them when they die or when a source file changes, and end them. Standard library only."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("portal", "scheduling", "clusters", "tenants", "workloads")


class SourceFiles:
    """The Python files of the product and their modification times at the last check."""

    def __init__(self, root: Path) -> None:
        self.folders = [root / name for name in PACKAGES]
        self.times = dict(self._read())

    def changed(self) -> list[Path]:
        """Return the files that were added, edited or deleted since the last check."""
        before, self.times = self.times, dict(self._read())
        return sorted({path for path, _ in before.items() ^ self.times.items()})

    def _read(self) -> Iterator[tuple[Path, int]]:
        for folder in self.folders:
            for path in folder.rglob("*.py"):
                try:
                    yield path, path.stat().st_mtime_ns
                except FileNotFoundError:  # deleted since the folder was listed
                    continue


SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
SETTLED_SECONDS = 30.0
GRACE_SECONDS = 10.0
PR_SET_PDEATHSIG = 1
RELOAD_SECONDS = 1.0
WEB_FIRST_SECONDS = 2.0
"""A developer waits for the page: the other processes start after the web process."""


def end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, even by kill -9. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Child:
    """One process to keep alive. `grace`: so many seconds it may take to end when it is asked to.

    `runs_our_code`: restart it when Python files change, if the supervisor watches them.
    """

    name: str
    command: tuple[str, ...]
    grace: float = GRACE_SECONDS
    runs_our_code: bool = False
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
    """Keeps children alive until it is stopped. Each writes to `logs/<name>.log` and has its id in `pids/`."""

    def __init__(
        self,
        children: Iterable[Child],
        *,
        folder: Path,
        root: Path,
        say: Callable[[str], None],
        sources: SourceFiles | None = None,
    ) -> None:
        self.children = list(children)
        self.sources, self.reload_at = sources, 0.0
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
                self.reload()
                if not greeted and responds_ok(url):
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

    def reload(self) -> None:
        """Restart the children that run our code when a Python file has changed; check once a second."""
        now = time.monotonic()
        if self.sources is None or now < self.reload_at:
            return
        self.reload_at = now + RELOAD_SECONDS
        if changed := self.sources.changed():
            children = [child for child in self.children if child.runs_our_code]
            names = ", ".join(child.name for child in children)
            self.say(f"{changed[0].relative_to(self.root)} changed: restarting {names}")
            end_children(children)
            for child in children:
                child.process, child.due_at, child.pause = None, now + WEB_FIRST_SECONDS, SHORTEST_PAUSE

    def end(self) -> None:
        """End every child and remove the files of process ids."""
        end_children(self.children)
        for file in self.pids.glob("*.pid"):
            file.unlink()


def end_children(children: Iterable[Child]) -> None:
    """SIGTERM to every child, a moment of grace, SIGKILL to what is left of its group."""
    running = [(child.process, child.grace) for child in children if child.process]
    for process, _ in running:
        process.terminate()
    begun = time.monotonic()
    for process, grace in running:
        end_group(process, max(0.1, begun + grace - time.monotonic()))


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


def responds_ok(url: str) -> bool:
    """True if the URL answers 200 now."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - our own address
            return bool(response.status == 200)
    except OSError:
        return False


LAB_NAME = "demo"
LAB_POOLS = {"h100": 4, "a100": 2}
LAB_GPUS = 8
LAB_GRACE_SECONDS = 25.0
"""It ends its programs one after another; killed before that, it would leave the rest running."""


class DemoLab:
    """`lab/cluster` with the demo's data folder."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        self.kubeconfig = folder / "lab" / "rung.kubeconfig"
        os.environ["LAB_WORK"] = str(folder / "lab")
        os.environ.setdefault("RUNG_CLUSTER_ADDRESSES", "127.0.0.0/8")

    def start(self) -> bool:
        """Build the programs if need be, bring the cluster up, make its account; False if that failed."""
        os.environ["LAB_BIN"] = self._answer("lab/build")
        up = bool(os.environ["LAB_BIN"]) and self._run("lab/cluster", "up", LAB_NAME, "--scheduler")
        return up and self._run("lab/cluster", "kinds", LAB_NAME) and self._nodes() and self._account()

    def child(self) -> Child:
        """The process that stays with the cluster and ends it, also when the demo is killed."""
        return Child(
            "lab", (str(self.root / "lab" / "cluster"), "run", LAB_NAME, "--scheduler"), grace=LAB_GRACE_SECONDS
        )

    def _nodes(self) -> bool:
        done = [
            self._run("lab/cluster", "gpu-nodes", LAB_NAME, str(count), str(LAB_GPUS), pool)
            for pool, count in LAB_POOLS.items()
        ]
        return all(done)

    def _account(self) -> bool:
        """A kubeconfig of Rung's own account, readable by this user only."""
        manifests = self._answer(sys.executable, "manage.py", "cluster_rbac", "--flavour", "kube")
        config = self._answer("lab/cluster", "account", LAB_NAME, given=manifests)
        self.kubeconfig.unlink(missing_ok=True)
        with os.fdopen(os.open(self.kubeconfig, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(config)
        return bool(config)

    def _run(self, program: str, *arguments: str) -> bool:
        command = [str(self.root / program), *arguments]
        done = subprocess.run(
            command, cwd=self.root, stdout=subprocess.DEVNULL, check=False, preexec_fn=end_with_parent
        )
        return done.returncode == 0

    def _answer(self, program: str, *arguments: str, given: str = "") -> str:
        """What a program printed; empty if it failed."""
        command = [str(self.root / program), *arguments]
        done = subprocess.run(
            command,
            cwd=self.root,
            input=given,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            preexec_fn=end_with_parent,
        )
        return done.stdout.strip() if done.returncode == 0 else ""
