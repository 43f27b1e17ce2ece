"""A trial's memory: traced on fake tensors before the trial runs, or recorded while it runs."""
