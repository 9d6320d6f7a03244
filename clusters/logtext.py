"""What a cluster says, made fit to be read: no terminal sequence, no control character, no endless line. Pure.

Log lines and event messages are a tenant's or an attacker's text. Escaping for HTML is the template's; this takes out
what would act on a terminal or reorder what is read. Sequences are those of ECMA-48, and OSC 8 for hyperlinks.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

LONGEST_LINE: Final = 4_000
MOST_LINES: Final = 100  # of a message
MOST_CHARACTERS: Final = 400_000
# A string sequence (OSC, DCS, SOS, PM, APC) ends with BEL or ST; one that never ends takes its whole line.
_STRING = r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|\x1b|$)"
_CSI = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
_SHORT = r"\x1b[ -/]*[0-~]?"
_SEQUENCE: Final = re.compile(f"{_STRING}|{_CSI}|{_SHORT}")
_REORDERING: Final = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
_CONTROL: Final = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff{_REORDERING}]")


@dataclass(frozen=True, slots=True)
class LogText:
    """The end of a log: clean lines, whether earlier ones were left out, and why it could not be read."""

    lines: Sequence[str] = ()
    cut: bool = False
    trouble: str = ""

    @property
    def text(self) -> str:
        """The lines as one text, each with its end."""
        return "".join(f"{line}\n" for line in self.lines)


def clean(line: str, *, longest: int = LONGEST_LINE) -> str:
    """One line as a person may read it: what a progress bar wrote last, tabs kept, cut with a remark."""
    start = line[: longest * 4]
    last = _SEQUENCE.sub("", start).rstrip("\r\n").rpartition("\r")[2]
    text = _CONTROL.sub("", last)
    if len(text) <= longest and len(start) == len(line):
        return text
    return f"{text[:longest]} … (the line goes on)"


def clean_message(text: str) -> str:
    """What a cluster says of an object, line by line; nearly always it is one."""
    return "\n".join(clean(line) for line in text.splitlines()[:MOST_LINES])


def tail(lines: Iterable[str], *, most_lines: int, most_characters: int = MOST_CHARACTERS) -> LogText:
    """The last of them, clean, within both caps."""
    every = list(lines)
    kept: list[str] = []
    room = most_characters
    for line in reversed(every[-most_lines:]):
        text = clean(line)
        room -= len(text) + 1
        if room < 0:
            break
        kept.append(text)
    return LogText(tuple(reversed(kept)), cut=len(kept) < len(every))
