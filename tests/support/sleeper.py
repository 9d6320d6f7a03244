"""The portal's Celery application with one more task, which only takes time: a worker for tests."""

import time

from portal.celery import app

__all__ = ["app"]


@app.task(name="tests.sleep")  # type: ignore[untyped-decorator]  # celery has no types
def sleep(seconds: float) -> None:
    """Be busy."""
    time.sleep(seconds)
