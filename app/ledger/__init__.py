"""The durable record of studies: what is written, read, replayed and restored."""
