"""Parts of HTML pages: the frame, style and script, and what charts share."""
