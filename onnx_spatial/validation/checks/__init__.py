"""Check one model: read, convert in each mode, replay and record data."""
