"""Other frameworks' training code; each module imports its own framework, and no other."""
