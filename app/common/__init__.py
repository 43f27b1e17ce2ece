"""Tools that all folders of ``app`` use.

Time, ports, files written atomically, YAML, and numbers and text in a form for people and
terminals.
"""
