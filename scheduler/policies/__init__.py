"""Policies, which order trials and choose their widths, one algorithm per file.

The folder also has the rules for the length of segments and for the checkpoints to keep.
"""
