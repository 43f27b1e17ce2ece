"""The memory needs of trials, estimated and measured, and the sharing of devices by these needs."""
