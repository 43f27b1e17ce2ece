"""Tables, stories and drawings that show studies to people, and reasons why studies stall."""
