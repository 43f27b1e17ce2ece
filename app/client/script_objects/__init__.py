"""Reports, hands back and guards the objects of a script that its objective changes."""
