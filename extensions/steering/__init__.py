"""Users' commands for single trials: stop, pause, resume, promote, retry."""
