"""Wrong conversions of a model that cannot run, because of an operator that no runtime has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import bases
import editing
import onnx
from drawn import Deception
from nets import TF, Net, Rng, net, weight
from onnx import TensorProto, numpy_helper

import onnx_spatial


@cache
def foreign() -> Net:
    """Build a net with an operator that onnxruntime does not have."""
    return net(
        "foreign",
        "float[n,h,w,3] x0",
        f"x = {TF}.SpaceToBatchND (x0, block, none); a = Relu (x); "
        "v = acme.Foo <alpha = 0.5> (a, fw); t = Transpose <perm = [0, 3, 1, 2]> (v); "
        "c = Conv (t, cw, cb); r = Relu (c); q = Mul (r, m); "
        f"b = Transpose <perm = [0, 2, 3, 1]> (q); y = {TF}.BatchToSpaceND (b, block, none)",
        {
            **bases.BLOCK,
            "fw": weight("fw", 5, scale=1.0),
            "cw": weight("cw", 4, 3, 3, 3),
            "cb": weight("cb", 4, scale=1.0),
            "m": weight("m", 4, 1, 1, scale=1.0),
        },
        domains=("acme",),
    )


def _node(model: onnx.ModelProto, output: str) -> onnx.NodeProto:
    return next(n for n in model.graph.node if output in n.output)


def _late(output: str, model: onnx.ModelProto) -> None:
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    at = next(i for i, n in enumerate(nodes) if output in n.output)
    nodes.insert(len(nodes) - 1, nodes.pop(at))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _shorter(axes: int, model: onnx.ModelProto) -> None:
    del model.graph.input[0].type.tensor_type.shape.dim[-axes:]


def _channels(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 4


def _input_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def _output_type(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64


def _function(domain: str, name: str, inputs: str, model: onnx.ModelProto) -> None:
    head = f'<domain: "{domain}", opset_import: ["" : 17]>'
    text = f"{head} {name} ({inputs}) => (o) {{ o = Neg (v) }}"
    model.functions.append(onnx.parser.parse_function(text))


def _attribute(model: onnx.ModelProto) -> None:
    editing.set_attribute(_node(model, "v"), "alpha", 0.51)


def _weight(name: str, model: onnx.ModelProto) -> None:
    (tensor,) = (t for t in model.graph.initializer if t.name == name)
    array = numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[0] *= 1.01
    tensor.CopyFrom(numpy_helper.from_array(array, name))


def _reads(output: str, names: tuple[str, ...], model: onnx.ModelProto) -> None:
    _node(model, output).input[:] = names


def _becomes(output: str, op_type: str, model: onnx.ModelProto) -> None:
    _node(model, output).op_type = op_type


#: Mistakes by what they are.
WAYS: Mapping[str, Callable[[onnx.ModelProto], None]] = {
    "Relu behind the node that reads it": partial(_late, "a"),
    "Conv behind the nodes that read it": partial(_late, "c"),
    "the input has rank 3": partial(_shorter, 1),
    "the input has rank 2": partial(_shorter, 2),
    "the input has 4 channels": _channels,
    "the input is double": _input_type,
    "the output is int64": _output_type,
    "a function for Foo is added": partial(_function, "acme", "Foo", "v, w"),
    "a function for Relu is added": partial(_function, "", "Relu", "v"),
    "alpha of Foo differs": _attribute,
    "a weight of Foo differs": partial(_weight, "fw"),
    "a weight of Conv differs": partial(_weight, "cw"),
    "a weight of Mul differs": partial(_weight, "m"),
    "Foo has its inputs exchanged": partial(_reads, "v", ("fw", "a")),
    "Foo reads one input": partial(_reads, "v", ("a",)),
    "Foo becomes Bar": partial(_becomes, "v", "Bar"),
    "Relu behind Foo becomes Tanh": partial(_becomes, "r", "Tanh"),
    "Conv has an operand too many": partial(_reads, "c", ("t", "cw", "cb", "m")),
    "a value is read that is not there": partial(_reads, "q", ("r", "absent")),
    "Mul reads the data before Relu": partial(_reads, "q", ("c", "m")),
}


def _foreign(rng: Rng, number: int) -> Deception | None:
    base, way = foreign(), [*WAYS][number % len(WAYS)]
    fuse = number // len(WAYS) % 2 == 0
    wrong = onnx.ModelProto()
    wrong.CopyFrom(onnx_spatial.convert(base.model, verify=False, fuse=fuse).model)
    try:
        WAYS[way](wrong)
    except (StopIteration, ValueError):
        return None  # the fusion has taken the place
    what = f"foreign operator{'' if fuse else ', not fused'}: {way}"
    return Deception(what, base.model, None, wrong, fact=way, must_fail=True)


CLASSES: dict[str, Callable[[Rng, int], Deception | None]] = {"foreign operator": _foreign}
