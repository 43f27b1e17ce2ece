"""Keeps a study in step with one in a storage of the user's: SQLite, a journal, another object."""
