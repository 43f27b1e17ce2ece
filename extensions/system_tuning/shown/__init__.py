"""Tables and charts of system configurations and of similar workloads."""
