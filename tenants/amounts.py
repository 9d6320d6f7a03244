"""Amounts as people type and read them. GPUs as devices ("6.5"), CPU as cores ("64", "500m"), memory as "512Gi"."""

from scheduling.resources import Resources, decimal_text


def parse(dimension: str, text: str) -> int | None:
    """GPU thousandths, CPU millicores or memory bytes; None for empty text. Raises ValueError when it is not exact."""
    cleaned = text.strip()
    return int(getattr(Resources.of(**{dimension: cleaned}), dimension)) if cleaned else None


def render(dimension: str, amount: int | None) -> str:
    """The same amount as `parse` reads it; empty for None."""
    if amount is None:
        return ""
    return str(Resources(memory=amount)).split()[0] if dimension == "memory" else decimal_text(amount)
