"""``penstock ui``: browser pages that show studies and devices live, and control them."""
