"""Trigram indexes for lists that are searched by a part of a name. PostgreSQL only; SQLite scans.

Without them `ILIKE '%text%'` reads the whole table as soon as few rows match. They need the extension `pg_trgm`, which
the owner of a database may create where the server has it. Where it cannot be created, searches scan, and the next
`migrate` tries again.
"""

from typing import Any, Final

import structlog
from django.apps import AppConfig
from django.db import Error, connections, transaction

log = structlog.get_logger(__name__)

_EXTENSION: Final = "CREATE EXTENSION IF NOT EXISTS pg_trgm"


def install(sender: AppConfig, using: str, **_kwargs: Any) -> None:
    """Receiver of `post_migrate`: index the text columns that the app names as `searched`, by model."""
    database = connections[using]
    if database.vendor != "postgresql" or not hasattr(sender, "searched"):
        return
    tables = set(database.introspection.table_names())
    try:
        with transaction.atomic(using=using), database.cursor() as cursor:
            cursor.execute(_EXTENSION)
            for name, fields in sender.searched.items():
                table = sender.get_model(name)._meta.db_table
                for field in fields if table in tables else ():
                    # As Django writes `icontains`; `gin` keeps a list of rows for each three letters.
                    cursor.execute(
                        f"CREATE INDEX IF NOT EXISTS {table}_{field}_trigrams ON {table} "
                        f"USING gin (UPPER({field}::text) gin_trgm_ops)"
                    )
    except Error as error:
        log.warning("no_trigram_indexes", app=sender.label, error=str(error).strip())
