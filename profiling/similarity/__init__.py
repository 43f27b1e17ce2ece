"""Search of the history of earlier tuning for workloads similar to this one."""
