"""Parts of HTML pages: the frame, style and script, and tools for charts."""
