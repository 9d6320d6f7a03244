"""How an answer looks: a table for people, JSON or YAML whole, or names for the next command.

Colour only on a terminal. A table fits a terminal by leaving columns out, never by cutting what it shows; in a pipe it
has every column, no colour and no padding. What a server says is shown without terminal sequences.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

import typer
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rung_cli.output.stderr import UNSEEN, colours, plain

Row = Mapping[str, Any]
_DANGEROUS: Final = re.compile(f"[{UNSEEN}]")
EMPTY: Final = "-"


class Format(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table. `wide`: shown from this many characters of terminal on. `style` may depend on the row."""

    title: str
    cell: Callable[[Row], object]
    wide: int = 0
    right: bool = False
    style: Callable[[Row], str] = lambda _row: ""


Columns = Sequence[TableColumn]


class Output:
    """Writes to stdout in one format."""

    def __init__(self, chosen: Format) -> None:
        self.format = chosen

    def rows(self, items: Sequence[Row], columns: Columns, *, name: Callable[[Row], str], empty: str) -> None:
        """A list. `empty`: the text for an empty table."""
        match self.format:
            case Format.TABLE if not items:
                self.line(empty)
            case Format.TABLE:
                self.table(items, columns)
            case Format.NAME:
                self.names(name(each) for each in items)
            case _:
                self.data(list(items))

    def one(self, item: Any, *, name: str, human: Callable[[], None]) -> None:
        """A single thing."""
        match self.format:
            case Format.TABLE:
                human()
            case Format.NAME:
                self.line(name)
            case _:
                self.data(item)

    def data(self, value: Any) -> None:
        """JSON or YAML, as the server said it."""
        _write(as_yaml(value) if self.format is Format.YAML else as_json(value))

    def names(self, names: Any) -> None:
        """One a line."""
        for each in names:
            self.line(each)

    def line(self, text: str = "", style: str = "") -> None:
        """One line; styled on a terminal."""
        cleaned = plain(text)
        if style and colours(sys.stdout):
            _console().print(Text(cleaned, style=style), soft_wrap=True)
        else:
            _write(cleaned)

    def table(self, items: Sequence[Row], columns: Columns) -> None:
        """The table itself."""
        if sys.stdout.isatty():
            _console().print(_rich(items, [each for each in columns if each.wide <= width()]))
            return
        for line in TableStream(columns).lines(items):
            _write(line)

    def stream(self, columns: Columns, *, name: Callable[[Row], str]) -> Callable[[Sequence[Row]], None]:
        """A function that adds rows to a list without end: a table that goes on, a document each, or names."""
        fitting = [each for each in columns if each.wide <= width() or not sys.stdout.isatty()]
        ways: Mapping[Format, Callable[[Sequence[Row]], Iterable[str]]] = {
            Format.TABLE: TableStream(fitting).lines,
            Format.NAME: lambda items: map(name, items),
            Format.JSON: lambda items: (as_json(each, indent=None) for each in items),
            Format.YAML: lambda items: (f"---\n{as_yaml(each)}" for each in items),
        }

        def add(items: Sequence[Row]) -> None:
            for text in ways[self.format](items):
                _write(text if self.format is Format.JSON else plain(text))

        return add

    def pairs(self, pairs: Sequence[tuple[str, object]]) -> None:
        """Names and values under each other; what has no value is left out."""
        known = [(name, plain(str(value))) for name, value in pairs if value not in (None, "", [])]
        size = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            text = value.replace("\n", "\n" + " " * (size + 2))
            self.line(f"{name:<{size}}  {text}")


class TableStream:
    """A table without colours whose columns keep their places, and grow where a later row needs it."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._widths: list[int] = []

    def lines(self, items: Sequence[Row]) -> Iterator[str]:
        """The rows; before the first ones the titles."""
        cells = [[_cell(each, row) for each in self._columns] for row in items]
        if not self._widths:
            cells.insert(0, [each.title for each in self._columns])
            self._widths = [0] * len(self._columns)
        self._widths = [max(size, *(len(row[place]) for row in cells), 0) for place, size in enumerate(self._widths)]
        for row in cells:
            fitted = (
                text.rjust(size) if column.right else text.ljust(size)
                for text, size, column in zip(row, self._widths, self._columns, strict=True)
            )
            yield "  ".join(fitted).rstrip()


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON, indented or in one line; what would act on a terminal is escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _DANGEROUS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def as_yaml(value: Any) -> str:
    """YAML in the server's order, without terminal sequences."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)
    return plain(text).rstrip("\n")


def width() -> int:
    """Of the terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def _console() -> Console:
    """Without colours also no bold and no dim: no escape sequence at all."""
    system: Literal["auto"] | None = "auto" if colours(sys.stdout) else None
    return Console(file=sys.stdout, width=width(), color_system=system, highlight=False, markup=False, emoji=False)


def _rich(items: Sequence[Row], columns: Columns) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in items:
        table.add_row(*(Text(_cell(column, row), style=column.style(row)) for column in columns))
    return table


def _cell(column: TableColumn, row: Row) -> str:
    value = column.cell(row)
    return EMPTY if value in (None, "") else plain(str(value)).replace("\n", " ")


def _write(text: str) -> None:
    """The reader may close the pipe, such as `head`: then stop without an error."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
