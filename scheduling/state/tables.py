"""Amounts by key, and tables of them by name."""

from typing import Any


def add(amounts: dict[int, int], key: int, amount: int) -> None:
    """Add to one of these amounts; zero is left out."""
    if more := amounts.get(key, 0) + amount:
        amounts[key] = more
    else:
        del amounts[key]


def copied(tables: dict[str, Any]) -> dict[str, Any]:
    """The same tables by the same names, copied one by one."""
    found = tables.copy()
    found.update((name, table.copy()) for name, table in tables.items())
    return found
