"""What is to be expected: the plan as readers see it, and the demand for devices."""
