"""What memory trials need, before they run and as measured, and how many share a device."""
