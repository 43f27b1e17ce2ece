"""The engine: a reducer that takes one event and returns decisions.

Each module handles one kind of occurrence, such as the end of an epoch or the loss of a device.
"""
