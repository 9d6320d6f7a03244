"""Let tests with generated input take their time: on a busy machine any example may exceed Hypothesis' 200 ms."""

from hypothesis import settings


def pytest_configure() -> None:
    """Before test modules are imported: their own settings start from these. All else stays as CI or the user chose."""
    current = settings.get_profile(settings.get_current_profile_name())
    settings.register_profile("without deadline", parent=current, deadline=None)
    settings.load_profile("without deadline")
