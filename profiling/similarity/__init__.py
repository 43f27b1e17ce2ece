"""What earlier tuning says of a workload like this one."""
