"""The pages of ``penstock ui``, which show studies and devices live and let users control both."""
