"""What every room of the shell uses: time, ports, files written whole, text, checks of values."""
