"""Fails when tests ran less than 90 % of all lines and branches together, or left one of `scheduling` out.

Reads the report that slipcover writes; `make test` runs it after the tests.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LEAST_PERCENT: Final = 90.0
COMPLETE: Final = "scheduling/"


def left_out(files: Mapping[str, Any]) -> list[str]:
    """A line for each file of `scheduling` with the lines, and the branches as [from, to], that no test ran."""
    return [
        f"{name}: lines {of['missing_lines']}, branches {of['missing_branches']}"
        for name, of in sorted(files.items())
        if name.startswith(COMPLETE) and (of["missing_lines"] or of["missing_branches"])
    ]


def main() -> int:
    """Print both figures; 1 when one of them misses its limit."""
    report = json.loads(Path(sys.argv[1]).read_text())
    percent, missing = report["summary"]["percent_covered"], left_out(report["files"])
    print(f"Coverage: {percent:.1f}% of all lines and branches (at least {LEAST_PERCENT:.0f} is asked for)")
    print("\n".join([f"Not all of {COMPLETE} was run:", *missing] if missing else [f"All of {COMPLETE} was run"]))
    return int(percent < LEAST_PERCENT or bool(missing))


if __name__ == "__main__":
    sys.exit(main())
