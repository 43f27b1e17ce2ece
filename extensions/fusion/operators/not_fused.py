"""The reason why trials cannot be fused."""


class NotFused(Exception):
    """Raised if a trial cannot be fused with others. The message tells users the reason."""
