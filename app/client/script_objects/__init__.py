"""Objects of a script that its objective changes: reported, handed back, guarded."""
