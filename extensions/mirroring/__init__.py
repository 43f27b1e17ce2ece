"""Keeps a study in step with a study in the user's own storage, such as SQLite or a journal."""
