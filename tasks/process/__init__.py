"""What every trainer process has.

Its pipe, sealed messages, failures, forks kept quiet, memory and joules.
"""
