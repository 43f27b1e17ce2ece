"""Why something stands still: doctor, what runs, what a study waits for."""
