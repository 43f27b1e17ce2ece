"""The node agent, which keeps a worker process running for each device of its machine."""
