"""Whatever people read: tables, stories, drawings, and why something stands still."""
