"""What every trainer process has.

Its pipe, sealed messages, marked output, failures, forks kept quiet, memory and joules.
"""
