"""`make demo`: the whole portal on this machine, as the children of one process that prepares, watches and ends them.

1. make the secret keys once, take the data folder for this process
2. migrate, collect static files, load the demo organisation into an empty database; with RUNG_LAB=1 start and connect
   a real control plane
3. start web, worker, beat and observer; start again what dies, with growing pauses
4. print address and logins once `/readyz` says 200
5. on Ctrl-C or SIGTERM, and even when this process is killed, end every child

`make dev` is the same with `--reload`: debug pages, templates and static files read at every request, and every process
restarted when a Python file changes.
"""

import argparse
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

from portal.demo.supervisor import PACKAGES, Child, DemoLab, SourceFiles, Supervisor, end_with_parent

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_PASSWORD = "rung-demo"  # noqa: S105 - printed on the terminal; the demo listens on this machine only
WORKERS = 3
LOGINS = {
    "admin": "platform admin",
    "alice": "owner of project llm-team",
    "bob": "member of project llm-team",
    "charlie": "member of project vision-team",
}


def main() -> int:
    """Run until stopped; return the exit code."""
    parser = argparse.ArgumentParser(prog="portal.demo")
    parser.add_argument("--reload", action="store_true", help="debug pages, reload on changes")
    reload = parser.parse_args().reload
    if os.environ.get("MAKELEVEL"):
        end_with_parent()
    folder, port = configure(debug=reload)
    lock = lock_data_folder(folder)
    if lock is None or port_in_use(port):
        what = f"The data folder {folder} is in use" if lock is None else f"Port {port} is taken"
        print(f"{what}. Is another demo running? Set RUNG_DATA and RUNG_PORT.", file=sys.stderr)
        return 1
    stored_secret_key(folder / "secret-key", secrets.token_urlsafe(48))
    stored_secret_key(folder / "credential-keys", base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
    lab = DemoLab(folder, ROOT) if os.environ.get("RUNG_LAB", "0") not in {"", "0"} else None
    if lab is not None:
        say("Starting a Kubernetes control plane. The first start builds it, which takes 15 minutes …")
        if not lab.start():
            return 1
    say("Preparing the database and the pages …")
    if not prepare(folder, lab):
        return 1
    processes = [*children(port, reload=reload), *([lab.child()] if lab else [])]
    supervise(processes, folder=folder, port=port, sources=SourceFiles(ROOT) if reload else None)
    return 0


def configure(*, debug: bool) -> tuple[Path, int]:
    """Set what the processes read from the environment and was not set; return the data folder and the port."""
    folder = Path(os.environ.setdefault("RUNG_DATA", str(ROOT / "var"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # it holds the database, its keys and logs, and other people may use this machine
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    os.environ.setdefault("RUNG_LOG_LEVEL", "WARNING")
    os.environ.setdefault("RUNG_CLUSTER_WORKERS", str(WORKERS - 1))
    os.environ.setdefault("RUNG_DEMO_PASSWORD", DEFAULT_PASSWORD)
    if debug:
        os.environ["RUNG_DEBUG"] = "true"
    return folder, int(os.environ.get("RUNG_PORT", "8000"))


def supervise(processes: list[Child], *, folder: Path, port: int, sources: SourceFiles | None) -> None:
    """Keep the processes running until a signal ends this one."""
    say("Starting web, worker, beat and observer …")
    supervisor = Supervisor(processes, folder=folder, root=ROOT, say=say, sources=sources)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    ready = greeting(port, os.environ["RUNG_DEMO_PASSWORD"])
    if sources:
        ready += f"\n  Changes of Python, templates and static files are reloaded. Logs: {folder / 'logs'}"
    supervisor.run(stop, url=f"http://127.0.0.1:{port}/readyz", ready=ready)


def lock_data_folder(folder: Path) -> TextIO | None:
    """A lock on the data folder for as long as this process lives; None if another process has it."""
    file = (folder / "demo.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def port_in_use(port: int) -> bool:
    """Whether a process listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stored_secret_key(file: Path, key: str) -> None:
    """Keep a key of this data folder, readable by its owner only; the key of an earlier start stays."""
    if not file.exists():
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(key)


def prepare(folder: Path, lab: DemoLab | None) -> bool:
    """Bring database and static files up to date, forget old messages; False if that failed (it has said why)."""
    for old in ("messages", "control"):
        shutil.rmtree(folder / "broker" / old, ignore_errors=True)
        (folder / "broker" / old).mkdir(parents=True)
    command = (sys.executable, "manage.py", "prepare_demo", *([str(lab.kubeconfig)] if lab else []))
    env = {**os.environ, "RUNG_WAKEUPS": "off"}  # no worker runs yet; the sweeps will find everything
    return subprocess.run(command, cwd=ROOT, env=env, check=False, preexec_fn=end_with_parent).returncode == 0


def children(port: int, *, reload: bool = False) -> list[Child]:
    """The processes of the portal. With `reload`, uvicorn restarts the web process itself and never closes its port."""
    python = sys.executable
    celery = (python, "-m", "celery", "-A", "portal", "--quiet")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")
    uvicorn = (python, "-m", "uvicorn", "portal.asgi:application", "--host", "127.0.0.1", "--port", str(port))
    options = ("--no-proxy-headers", "--no-server-header", "--lifespan", "off", "--timeout-graceful-shutdown", "3")
    watched = [part for name in PACKAGES for part in ("--reload-dir", name)]
    reloading = ("--reload", *watched) if reload else ()
    # Threads: a pool of processes on a broker of files may stop for good when one of them is killed.
    worker = (*celery, "worker", "--pool", "threads", "--concurrency", str(WORKERS), *quiet)
    beat = (*celery, "beat", "--loglevel", "WARNING", "--pidfile", "")
    return [
        Child("web", (*uvicorn, *options, *reloading)),
        Child("worker", worker, runs_our_code=True),
        Child("beat", beat, runs_our_code=True),
        Child("observer", (python, "manage.py", "observer"), runs_our_code=True),
    ]


def greeting(port: int, password: str) -> str:
    """What a newcomer needs to know."""
    logins = "\n".join(f"    {name:<8} {role}" for name, role in LOGINS.items())
    return (
        f"\n  Rung is ready: http://127.0.0.1:{port}/\n\n  Sign in with the password {password} as\n{logins}\n\n  "
        "Press Ctrl-C to stop. The data is kept."
    )


def say(text: str) -> None:
    """To the terminal, at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
