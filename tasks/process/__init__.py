"""The parts of every trainer process.

Its pipe, sealed messages, marked output, failures, forks kept quiet, memory and joules; the fork
server that workers and trainers come from, and messages with descriptors.
"""
