"""Lists and states of studies, and the reasons why a study makes no progress."""
