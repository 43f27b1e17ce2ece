"""Values that processes send each other: sealed messages, addresses, open files over a socket."""
