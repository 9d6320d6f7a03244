"""KAI's programs do not come with the lab: who asks for them is told what is missing."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.repository import ROOT


@pytest.mark.parametrize(("folder", "said"), [("", "needs LAB_KAI_BIN"), ("/nowhere", "no program scheduler of KAI")])
def test_a_start_without_them_is_refused_and_says_so(folder: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "kwokctl").touch(mode=0o755)  # it never comes to that
    env = {**os.environ, "LAB_KAI_BIN": folder, "LAB_BIN": str(tmp_path), "LAB_WORK": str(tmp_path / "work")}
    command = [str(ROOT / "lab" / "cluster"), "up", "none", "--kai"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 69
    assert said in done.stderr
    assert "LAB_KAI_BIN" in done.stderr
