"""Checks the environment that a study is given."""

from __future__ import annotations

from .forms import check_environment

#: The checks of this extension's fields of ``StudySpec``, by field.
CHECKS = {"environment": lambda _shown, value: check_environment(value)}
