"""Who runs how wide.

One algorithm a file; how long a segment is, and which checkpoints are kept.
"""
