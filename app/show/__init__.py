"""Tables, stories and drawings that people read, and why something stands still."""
