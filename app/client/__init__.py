"""The script's side: the Python API, and the script's objects that objectives change."""
