"""Read, check and write model files; large weights stay on disk."""
