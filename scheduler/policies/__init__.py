"""Who runs how wide, one algorithm a file; how long a segment is, and what is kept."""
