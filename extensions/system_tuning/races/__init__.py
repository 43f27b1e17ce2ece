"""Races between system configurations, and the rules that judge them."""
