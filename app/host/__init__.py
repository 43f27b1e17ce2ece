"""This machine: settings, the state folder with its locks and logs, child processes, devices."""
