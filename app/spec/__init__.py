"""Checked descriptions of studies, as users give them.

Space, sampler options, strategy, objectives, constraints, resources and limits, warm start; the
study specification that comes of it.
"""
