"""Helpers that every other package may import.

Errors and their wording, optional imports, URLs without passwords, and the detection of files that
hide a library.
"""
