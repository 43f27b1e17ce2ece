"""Checked descriptions of studies, as users give them.

The modules check the search space, the sampler's options, the strategy, the objectives, the
constraints, the groups of options and the warm start. From these parts they build the
``StudySpec``, the complete specification of a study.
"""
