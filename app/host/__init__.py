"""This machine: its settings, state folder, locks, logs and devices.

Modules here also start processes that run users' code, and end them with all processes that these
started.
"""
