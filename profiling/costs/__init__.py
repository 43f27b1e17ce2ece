"""The cost model: seconds by width, interference between trials, failure rates."""
