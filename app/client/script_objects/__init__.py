"""What objectives change of their scripts: said before the first trial, handed back, guarded."""
