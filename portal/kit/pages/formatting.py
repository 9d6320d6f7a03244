"""Numbers and times as people read them. Pure: the moment is an argument."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

AMBER_AFTER: Final = timedelta(seconds=30)
NOT_CURRENT_AFTER: Final = timedelta(minutes=5)
_DAYS, _HOURS, _MINUTES = ("d", 86400), ("h", 3600), ("m", 60)


def gpu_text(milli: int) -> str:
    """GPU thousandths as devices: 1500 is "1.5"."""
    return format((Decimal(milli) / 1000).normalize(), "f")


def gpus_text(milli: int) -> str:
    """With its unit: "1 GPU", "0.5 GPUs"."""
    return f"{gpu_text(milli)} {'GPU' if milli == 1000 else 'GPUs'}"


def duration_text(time: timedelta | float) -> str:
    """Of a span or of seconds: "2 d 3 h", "5 h 40 m", "14 min", "30 s". Seconds matter only below a minute."""
    left = max(int(time.total_seconds() if isinstance(time, timedelta) else time), 0)
    if left < 3600:
        return f"{left // 60} min" if left >= 60 else f"{left} s"
    (unit, size), (lesser, its_size) = (_DAYS, _HOURS) if left >= _DAYS[1] else (_HOURS, _MINUTES)
    rest = left % size // its_size
    return f"{left // size} {unit}" + (f" {rest} {lesser}" if rest else "")


THRESHOLD: Final = 100
SOURCES: Final = {
    "explicit": "set explicitly",
    "label": "set by a label of the manifest",
    "pod template": "set by priorityClassName in the pod template",
    "policy": "set by policy",
}


def source_text(code: str, type_title: str, value: int) -> str:
    """Where an effective priority or preemptibility came from; `value` is the priority's."""
    if code == "type":
        return f"default for {type_title}"
    if code == "threshold":
        return "because the priority is 100 or higher" if value >= THRESHOLD else "because the priority is below 100"
    return SOURCES.get(code, code)


@dataclass(frozen=True, slots=True)
class Age:
    """How old a reading is. `tone` is fresh, amber or old."""

    words: str
    tone: str


def age_of(at: datetime | None, *, now: datetime) -> Age:
    """Readings older than 30 s are called stale, older than 5 min not current: a colour alone would not do."""
    if at is None:
        return Age("never observed", "old")
    passed = max(now - at, timedelta(0))
    words = f"{duration_text(passed)} ago"
    if passed > NOT_CURRENT_AFTER:
        return Age(f"not current: {words}", "old")
    return Age(f"stale: {words}", "amber") if passed > AMBER_AFTER else Age(words, "fresh")


@dataclass(frozen=True, slots=True)
class QuotaBar:
    """One quota bar, in GPU thousandths and in per cent of the widest amount that it shows."""

    deserved: int
    used: int
    non_preemptible: int
    limit: int | None

    @property
    def over_quota(self) -> int:
        return max(self.used - self.deserved, 0)

    @property
    def in_quota(self) -> int:
        return min(self.used, self.deserved)

    @property
    def remaining(self) -> int:
        return max(self.deserved - self.used, 0)

    @property
    def scale(self) -> int:
        return max(self.limit or 0, self.deserved, self.used, 1000)

    def share(self, milli: int) -> str:
        """Per cent of the bar, as SVG reads it."""
        return f"{100 * milli / self.scale:.2f}%"

    @property
    def widths(self) -> dict[str, str]:
        guaranteed = min(self.non_preemptible, self.used)
        return {
            "deserved": self.share(self.deserved),
            "in_quota": self.share(self.in_quota),
            "guaranteed": self.share(guaranteed),
            "over": self.share(self.over_quota),
            "limit": self.share(self.limit) if self.limit is not None else "",
        }
