"""Views of studies, trials and devices in a terminal, and the numbers that these views show."""
