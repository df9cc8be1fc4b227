"""Choose sizes and data for inputs: legal ones, edge cases, and those that the user gives."""
