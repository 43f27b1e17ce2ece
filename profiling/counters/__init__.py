"""What this process does while it trains, by counters: of the kernel, the CPU, the GPU."""
