"""Memory that trials need, before they run and as measured, and sharing of devices by it."""
