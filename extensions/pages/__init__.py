"""``penstock ui``: pages in the browser that show studies and devices live, and control them."""
