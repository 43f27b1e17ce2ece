"""What is shown of system configurations: tables, charts, workloads alike."""
