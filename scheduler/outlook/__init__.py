"""Forecasts: the plan as readers see it, and the demand for devices."""
