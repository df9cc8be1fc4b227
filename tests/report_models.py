"""Nets of any number of nodes, with dilated convolutions in blocks, for reports."""

import numpy as np
import onnx
from parsing import model

#: A name that would be markup if it were not escaped.
NASTY = "</script><script>document.title = 'broken'</script><b>&amp;\u2028'\""


def net(nodes: int, regions: int) -> onnx.ModelProto:
    """A chain with skips: `regions` times SpaceToBatchND - Conv - BatchToSpaceND among other nodes."""
    texts, value, skip = ["v0 = Relu(x)"], "v0", "v0"

    def add(call: str) -> str:
        texts.append(f"v{len(texts)} = {call}")
        return f"v{len(texts) - 1}"

    every = nodes // regions
    while len(texts) < nodes - 1:
        if len(texts) % every == 1 and len(texts) + 7 < nodes:
            blocks = add(f"Transpose <perm = [0, 2, 3, 1]> ({value})")
            blocks = add(f"tf.SpaceToBatchND({blocks}, block, pads)")
            blocks = add(f"Transpose <perm = [0, 3, 1, 2]> ({blocks})")
            blocks = add(f"Conv({blocks}, w)")
            blocks = add(f"Transpose <perm = [0, 2, 3, 1]> ({blocks})")
            blocks = add(f"tf.BatchToSpaceND({blocks}, block, crops)")
            value = skip = add(f"Transpose <perm = [0, 3, 1, 2]> ({blocks})")
        elif len(texts) % 5 == 3:
            value = skip = add(f"Add({value}, {skip})")
        else:
            value = add(f"{('Relu', 'Sigmoid', 'Tanh')[len(texts) % 3]}({value})")
    made = model(
        f"net (float[1,2,4,4] x) => (float[1,2,4,4] y) {{ {' '.join(texts)} y = Identity({value}) }}",
        **{"block": [2, 2], "pads": [[2, 2], [2, 2]], "crops": [[0, 0], [0, 0]]},
        w=np.random.default_rng(0).standard_normal((2, 2, 3, 3)).astype(np.float32),
    )
    for number, node in enumerate(made.graph.node):
        node.name = f"layer_{number}/{node.op_type}"
    made.graph.node[0].name, made.graph.node[-1].name = NASTY, "end"
    return made


def without_blocks(whole: onnx.ModelProto) -> onnx.ModelProto:
    """The net without SpaceToBatchND, BatchToSpaceND and Transposes: its Convs read what these read."""
    result = onnx.ModelProto()
    result.CopyFrom(whole)
    del result.graph.node[:]
    source: dict[str, str] = {}
    for node in whole.graph.node:
        reads = [source.get(name, name) for name in node.input]
        if node.op_type in ("SpaceToBatchND", "BatchToSpaceND", "Transpose"):
            source[node.output[0]] = reads[0]
            continue
        kept = result.graph.node.add()
        kept.CopyFrom(node)
        kept.input[:] = reads
    return result
