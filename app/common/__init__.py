"""Tools that every room of the shell uses.

Time, ports, files written whole, YAML, numbers and text as people and terminals may be given them.
"""
