"""Commands for one trial: stop it, pause it, send it further, try it again."""
