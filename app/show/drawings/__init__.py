"""Parts of HTML pages: the frame, the style, the script, and tools for charts."""
