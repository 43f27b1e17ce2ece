"""Optuna behind the scenes.

Its samplers are asked, its distributions and frozen trials made from ours, its storage and
dashboard fed.
"""
