"""Objects of a script that its objective changes in other processes.

The changes are reported to the user, copied back to the script, or guarded against wrong use.
"""
