"""What everybody may use.

Errors and how they are worded, optional imports, URLs without passwords, files that hide a
library.
"""
