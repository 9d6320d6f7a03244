"""Volcano's programs do not come with the lab: who asks for them is told what is missing."""

import os
import subprocess
from pathlib import Path

import pytest

from clusters.flavours.volcano_config import KEY, admin_warnings, facts_of
from tests.support.repository import ROOT

LAB = ROOT / "lab"


@pytest.mark.parametrize(("folder", "said"), [("", "needs LAB_VOLCANO_BIN"), ("/nowhere", "no program scheduler")])
def test_without_them_a_start_is_refused_and_says_so(folder: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "kwokctl").touch(mode=0o755)  # it never comes to that
    env = {**os.environ, "LAB_VOLCANO_BIN": folder, "LAB_BIN": str(tmp_path), "LAB_WORK": str(tmp_path / "work")}
    command = [str(LAB / "cluster"), "up", "none", "--volcano"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 69
    assert said in done.stderr
    assert "LAB_VOLCANO_BIN" in done.stderr


def test_the_labs_configuration_is_the_one_that_rungs_words_need() -> None:
    assert admin_warnings(facts_of({"data": {KEY: (LAB / "volcano.conf").read_text(encoding="utf-8")}})) == ()
