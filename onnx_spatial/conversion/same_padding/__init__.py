"""Give convolutions with auto_pad SAME and dilations explicit pads: onnxruntime refuses them."""
