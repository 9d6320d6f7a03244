"""A web process collects calmly: what was loaded is not looked through again and again."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.processes import environment
from tests.support.repository import ROOT

LOADED = """
import gc, json
from uvicorn import Config
Config("portal.asgi:application", lifespan="off").load()
print(json.dumps([gc.get_freeze_count(), gc.get_threshold()[0], gc.isenabled()]))
"""


def test_what_a_web_process_has_loaded_is_frozen_before_its_first_request(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, check=True)
    frozen, threshold, enabled = json.loads(done.stdout.splitlines()[-1])
    assert frozen > 100_000
    assert 5_000 < threshold <= 10_000  # rare, and no collection holds a request for more than some milliseconds
    assert enabled is True
