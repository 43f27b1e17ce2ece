"""Why trials cannot be stepped together."""


class NotFused(Exception):
    """A trial cannot be stepped together with others. The message says why, for people."""
