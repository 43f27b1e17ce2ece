"""What every trainer process has: its pipe, messages, failures, children, memory and joules."""
