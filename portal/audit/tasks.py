"""Tasks of the audit trail."""

from celery import shared_task

from portal.audit.chain import seal


@shared_task(name="audit.seal")
def seal_records() -> None:
    """Seal what was recorded since the last run."""
    seal()
