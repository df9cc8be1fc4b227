"""Edit graphs: names, replaced and inserted nodes, functions, and patches of the original message."""
