"""Policies, which order trials and choose their widths, one algorithm per file.

The package also has the rules for the length of segments (epochs sent as one task) and for the
checkpoints to keep.
"""
