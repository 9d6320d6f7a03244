"""`make demo`: the whole portal on this machine, as the children of one process that prepares, watches and ends them.

1. make the secret keys once, take the data folder for this process
2. migrate, collect static files, load the demo organisation into an empty database; with RUNG_LAB=1 start and connect
   a real control plane
3. start web, worker, beat and observer; start again what dies, with growing pauses
4. print address and logins once `/readyz` says 200
5. on Ctrl-C or SIGTERM, and even when this process is killed, end every child
"""

import base64
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TextIO

from portal.demo_lab import DemoLab
from portal.supervisor import Child, Supervisor, end_with_parent

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_PASSWORD = "rung-demo"  # noqa: S105 - printed on the terminal; the demo listens on this machine only
WORKERS = 3
LOGINS = {
    "admin": "platform admin",
    "alice": "owner of project llm-team",
    "bob": "member of project llm-team",
    "charlie": "member of project vision-team",
}


def main() -> int:
    """Run until told to stop; answers the exit code."""
    if os.environ.get("MAKELEVEL"):
        end_with_parent()
    folder = Path(os.environ.setdefault("RUNG_DATA", str(ROOT / "var"))).resolve()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    os.environ.setdefault("RUNG_LOG_LEVEL", "WARNING")
    os.environ.setdefault("RUNG_CLUSTER_WORKERS", str(WORKERS - 1))
    password = os.environ.setdefault("RUNG_DEMO_PASSWORD", DEFAULT_PASSWORD)
    port = int(os.environ.get("RUNG_PORT", "8000"))
    folder.mkdir(parents=True, exist_ok=True)
    lock = take(folder)
    if lock is None or taken(port):
        what = f"The data folder {folder} is in use" if lock is None else f"Port {port} is taken"
        print(f"{what}: is another demo running? Set RUNG_DATA and RUNG_PORT.", file=sys.stderr)
        return 1
    make_key(folder / "secret-key", secrets.token_urlsafe(48))
    make_key(folder / "credential-keys", base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
    lab = DemoLab(folder, ROOT) if os.environ.get("RUNG_LAB", "0") not in {"", "0"} else None
    if lab is not None:
        say("Starting a real control plane; the first time its programs are built, which takes a quarter of an hour …")
        if not lab.start():
            return 1
    say("Preparing the database and the pages …")
    if not prepare(folder, lab):
        return 1
    say("Starting web, worker, beat and observer …")
    supervisor = Supervisor([*children(port), *([lab.child()] if lab else [])], folder=folder, root=ROOT, say=say)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    supervisor.run(stop, url=f"http://127.0.0.1:{port}/readyz", ready=greeting(port, password))
    return 0


def take(folder: Path) -> TextIO | None:
    """A lock on the data folder for as long as this process lives; None if somebody else has it."""
    file = (folder / "demo.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def taken(port: int) -> bool:
    """True if somebody listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def make_key(file: Path, key: str) -> None:
    """Keep a key of this data folder, readable by its owner only; the key of an earlier start stays."""
    if not file.exists():
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(key)


def prepare(folder: Path, lab: DemoLab | None) -> bool:
    """Bring database and static files up to date, forget old messages; False if that failed (it has said why)."""
    for old in ("messages", "control"):
        shutil.rmtree(folder / "broker" / old, ignore_errors=True)
        (folder / "broker" / old).mkdir(parents=True)
    command = (sys.executable, "-m", "portal.demo_data", *([str(lab.kubeconfig)] if lab else []))
    env = {**os.environ, "RUNG_WAKEUPS": "off"}  # nobody listens yet; the sweeps will find everything
    return subprocess.run(command, cwd=ROOT, env=env, check=False, preexec_fn=end_with_parent).returncode == 0


def children(port: int) -> list[Child]:
    """The processes of the portal."""
    python = sys.executable
    celery = (python, "-m", "celery", "-A", "portal", "--quiet")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")
    uvicorn = (python, "-m", "uvicorn", "portal.asgi:application", "--host", "127.0.0.1", "--port", str(port))
    return [
        Child("web", (*uvicorn, "--no-proxy-headers", "--lifespan", "off", "--timeout-graceful-shutdown", "3")),
        # Threads: a pool of processes on a broker of files may stop for good when one of them is killed.
        Child("worker", (*celery, "worker", "--pool", "threads", "--concurrency", str(WORKERS), *quiet)),
        Child("beat", (*celery, "beat", "--loglevel", "WARNING", "--pidfile", "")),
        Child("observer", (python, "manage.py", "observer")),
    ]


def greeting(port: int, password: str) -> str:
    """What a newcomer needs to know."""
    logins = "\n".join(f"    {name:<8} {role}" for name, role in LOGINS.items())
    return (
        f"\n  Rung is ready: http://127.0.0.1:{port}/\n\n  Sign in with the password {password} as\n{logins}\n\n"
        "  Ctrl-C ends it; the data stays."
    )


def say(text: str) -> None:
    """To the terminal, at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
