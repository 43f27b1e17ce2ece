"""The processes that stay up (scheduler, node agent, Flower), and who cleans up after them."""
