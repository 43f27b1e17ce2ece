"""Tables and charts of system configurations, and of workloads alike."""
