"""What everybody may use: errors, optional imports, words and URLs for messages."""
