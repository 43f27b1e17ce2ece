"""Lists and states of studies, and reasons why a study makes no progress."""
