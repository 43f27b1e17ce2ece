"""Checks the environment that a user gives to a study."""

from __future__ import annotations

from .forms import check_environment

#: The checks of this extension's fields of ``StudySpec``, by the field's name.
CHECKS = {"environment": lambda _shown, value: check_environment(value)}
