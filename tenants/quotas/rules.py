"""Amounts as people type and read them. GPUs as devices ("6.5"), CPU as cores ("64", "500m"), memory as "512Gi"."""

from decimal import Decimal, InvalidOperation

from scheduling.model.resources import Resources, decimal_text


def parse_amount(dimension: str, text: str) -> int | None:
    """GPU thousandths, CPU millicores or memory bytes; None for empty text. Raises ValueError when it is not exact."""
    cleaned = text.strip()
    return int(getattr(Resources.of(**{dimension: cleaned}), dimension)) if cleaned else None


def format_amount(dimension: str, amount: int | None) -> str:
    """The same amount as `parse_amount` reads it; empty for None."""
    if amount is None:
        return ""
    return str(Resources(memory=amount)).split()[0] if dimension == "memory" else decimal_text(amount)


def weight_of(value: str) -> float:
    """An over-quota weight of a filter, exact to the thousandth."""
    return gpu_milli(value) / 1000


def gpu_milli(value: str) -> int:
    """GPU devices as thousandths; more exact than that is no amount."""
    try:
        exact = Decimal(value) * 1000
        found = int(exact)
    except (InvalidOperation, OverflowError):
        raise ValueError(value) from None
    if found != exact or abs(found) >= 10**18:
        raise ValueError(value)
    return found
