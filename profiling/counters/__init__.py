"""What a process does and draws: kernel, CPU, GPU, joules."""
