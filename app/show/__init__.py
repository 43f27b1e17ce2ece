"""Tables, stories and drawings for people, and reasons why a study makes no progress."""
