"""Convert to the function form: spatial nodes stay, and local functions define them.

    y = SpaceToBatchND(x, block_shape, paddings)        the node, as it was
    SpaceToBatchND (x, block_shape, paddings) => (y)    { Pad, Reshape, Transpose, Reshape }

`add_functions` adds the functions, and `remove_functions` removes them again. A metadata key on the
FunctionProto marks the added functions; a function of the user's own is never touched, whatever its
name.
"""
