"""The page of all errors' messages is the code's, and no message is without words."""

from __future__ import annotations

from messages import PAGE, messages, page


def test_the_page_of_messages_is_the_codes():
    """``python -m tests.messages --write`` writes it: read what has changed as a user would."""
    assert PAGE.read_text() == page(messages()), "python -m tests.messages --write"


def test_messages_are_read_as_the_code_makes_them(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.py").write_text(
        "class Taken(BackendError): pass\n"
        "def f(n):\n"
        "    raise UsageError(f'{n} is too large: ' + ('one' if n else 'two'), 'n')\n"
        "    raise UsageError.refuse('width', n, f'1 to {MOST}')\n"
        "    raise TrialFailed('code', 'it ended', traceback)\n"
        "    raise Taken(words(n))\n"
        "    raise ValueError('not ours')\n"
    )
    assert [(message.error, message.text) for message in messages(tmp_path)] == [
        ("UsageError", "{n} is too large: [one | two]"),
        ("UsageError", "width = {n} is refused: allowed is 1 to {MOST}"),
        ("TrialFailed", "it ended"),
        ("Taken", "{words(n)}"),
    ]
