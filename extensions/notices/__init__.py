"""Notices to people about studies that have ended, failed, stand still or are late."""
