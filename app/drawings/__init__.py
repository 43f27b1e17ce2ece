"""What pages of HTML are made of: their frame, style and script, and what charts share."""
