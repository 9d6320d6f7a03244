"""Audit records can be added and read, nothing else: the database says so."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from portal.audit import triggers


def install(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    triggers.install(editor, editor.connection.vendor)


def remove(_apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    triggers.remove(editor, editor.connection.vendor)


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]

    operations = [migrations.RunPython(install, remove)]
