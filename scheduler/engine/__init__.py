"""One event in, decisions out: a file for each thing that can happen."""
