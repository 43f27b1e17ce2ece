"""Checked descriptions of studies, as users give them.

Space, sampler options, strategy, objectives, constraints, resources and limits, warm start; and the
study specification made from them.
"""
