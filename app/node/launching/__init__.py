"""The launcher process of a node, which starts and ends trainers, and its client in workers."""
