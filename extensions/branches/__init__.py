"""Branches: trials that continue another trial after one of its epochs, with changed values."""
