"""The broker: its server, the protocol of keys and scripts, and both directions of the wire."""
