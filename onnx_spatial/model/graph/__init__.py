"""Edit graphs: names, replaced and inserted nodes, functions, patches of the original message."""
