"""Why something makes no progress: doctor, what runs, what a study waits for."""
