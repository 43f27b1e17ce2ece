"""The parts of every trainer process.

They are its pipe, the marks on its output, reports of failures, the handling of SIGTERM and of
forked children, memory and joules, and the fork server that workers and trainers come from.
"""
