"""Allocation of slots to trials: fair shares, slots, packing."""
