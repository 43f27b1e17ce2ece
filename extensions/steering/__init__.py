"""Commands for single trials: stop, pause, resume, promote, retry."""
