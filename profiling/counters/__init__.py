"""Counters of a process's activity and energy: kernel, CPU, GPU, joules."""
