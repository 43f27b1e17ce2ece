"""Who may have which slot: fair shares, slots, packing."""
