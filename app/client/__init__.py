"""The part of Penstock that runs in the user's script: the Python API.

It also handles objects of the script that objectives change in other processes.
"""
