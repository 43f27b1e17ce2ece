"""Notices of studies to people: ended, failed, standing still, late."""
