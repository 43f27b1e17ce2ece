"""Finds operators that are computed for all trials at once without having passed the rules.

Theory of operation. Scripted code and extensions call torch's kernels directly, not through its
functions. This mode sees the kernels themselves. It takes more time than a small step, so only the
first step of each group is watched.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from .not_fused import NotFused
from .rules import Rules


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Raises ``NotFused`` at its end if operators ran while ``rules`` were not at work."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rules = rules
        self._unseen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._rules.at_work:
            self._unseen.add(str(func))
        return func(*args, **(kwargs or {}))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        # Raise only at the end: scripted code would turn the error into one of its own.
        if self._unseen and (error is None or isinstance(error, Exception)):
            names = ", ".join(sorted(self._unseen))
            raise NotFused(
                f"{names}: called where torch does not say so, as in scripted code"
            ) from error
