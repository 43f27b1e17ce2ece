"""Policies, which order trials and choose their widths, one algorithm a file.

Also the length of segments, and the choice of checkpoints to keep.
"""
