"""How much memory a trial needs: what was traced, what was measured, and how far to trust it."""
