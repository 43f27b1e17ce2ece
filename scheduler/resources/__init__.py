"""Allocation of slots to trials: fair shares of studies, free slots, packing, segment lengths."""
