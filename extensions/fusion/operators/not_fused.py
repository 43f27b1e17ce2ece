"""The reason why trials cannot be fused."""


class NotFused(Exception):
    """A trial cannot be fused with others. The message says why, for people."""
