"""Run pytest with the coverage of its workers measured: `python -m tests.measured -n 3 …` writes `.coverage.json`.

`python -m slipcover -m pytest` also puts probes into what the controller of pytest-xdist loads. The controller runs no
test, and until it has loaded everything there is no worker.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
from slipcover.config import read_config
from slipcover.slipcover import DEFAULT_EXCLUDE


def main() -> int:
    """Give slipcover's plugin the configuration as slipcover itself would; answer with the exit code of pytest."""
    config = read_config()
    os.environ |= {
        "SLIPCOVER_ENABLED": "1",
        "SLIPCOVER_BRANCH": str(int(config["branch"])),
        "SLIPCOVER_SOURCE": ",".join(config["source"]),
        "SLIPCOVER_OMIT": ",".join(config["omit"]),
        "SLIPCOVER_EXCLUDE_LINES": "\n".join([*DEFAULT_EXCLUDE, *config["exclude-also"]]),
    }
    status = pytest.main(sys.argv[1:])
    folder = Path(os.environ["SLIPCOVER_COVERAGE_DIR"])
    shutil.move(folder / "merged.json", config["out"])
    shutil.rmtree(folder)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
