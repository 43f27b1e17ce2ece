"""This machine.

Settings, the state folder with its locks and logs, devices; it starts processes that run users'
code, and ends them with all that they started.
"""
