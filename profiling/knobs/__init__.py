"""System parameters, and how two settings of them are compared."""
