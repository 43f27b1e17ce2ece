"""What a user says of a study, checked.

Space, sampler options, strategy, objectives, constraints, resources and limits, warm start; the
study specification that comes of it.
"""
