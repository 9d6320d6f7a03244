"""Tables as CSV. A spreadsheet that opens one shows every cell and calculates none."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

from django.http import HttpResponse
from django.utils.text import slugify

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A head and rows; every cell is text."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([csv_cell(each) for each in row] for row in rows)
    return text.getvalue()


def csv_cell(text: str) -> str:
    """The text, with a quote before what a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(FORMULA) or text.lstrip().startswith(FORMULA) else text


def csv_response(text: str, *, name: str) -> HttpResponse:
    """A sheet as a file that is called so, as far as file names go."""
    headers = {"Content-Disposition": f'attachment; filename="{slugify(name) or "table"}.csv"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)
