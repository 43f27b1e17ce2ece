"""When policies are asked, what they are given, and how their plans are followed."""
