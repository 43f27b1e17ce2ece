"""A trial's memory: traced on fake tensors before it runs, or recorded as it runs."""
