"""What is known of sizes before a run is what onnxruntime comes to, on random shape arithmetic.

Every value of a random graph is an output. Its elements and dims as expressions, with numbers from
the run for the atoms that only the run knows, have to be the elements and dims of the run.
"""

from __future__ import annotations

from functools import reduce
from random import Random

import numpy as np
import pytest
import running
import sampling
from hypothesis import given, settings
from onnx import TensorProto, helper, numpy_helper

from onnx_spatial.maps.expressions import FLOOR, UNKNOWN, LiteralKey
from onnx_spatial.maps.polynomial import OperationKey, Polynomial
from onnx_spatial.maps.sizes import DimKey, ElementKey, NamedDimKey, SymbolicValues
from onnx_spatial.model.inference import constant_folding

#: What sizes are below; behind a number that is not, nothing is promised.
LIMIT = 2**31
INT32, INT64, FLOAT, DOUBLE = (
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
)


class Evaluator:
    """Expressions as numbers, given all values of a run."""

    def __init__(self, values: dict[str, np.ndarray], symbols: dict[str, int]) -> None:
        self._values = values
        self._symbols = symbols
        self._known: dict[object, object] = {}

    def number(self, expression: Polynomial) -> int:
        total = 0
        for product, factor in expression.terms.items():
            total += reduce(lambda a, b: a * b, map(self._atom, product), factor)
        return total

    def _atom(self, atom) -> object:
        if atom not in self._known:
            self._known[atom] = self._key(atom.key)
        return self._known[atom]

    def _key(self, key: object) -> object:
        match key:
            case ElementKey(name=name, index=index):
                return self._values[name].reshape(-1)[index].item()
            case DimKey(name=name, axis=axis):
                return self._values[name].shape[axis]
            case NamedDimKey(name=name):
                return self._symbols[name]
            case LiteralKey(element_type=element_type, data=data):
                return np.frombuffer(data, helper.tensor_dtype_to_np_dtype(element_type))[0]
            case OperationKey():
                return self._computed(key)
        raise AssertionError(key)

    def _computed(self, key: OperationKey) -> object:
        operands = [
            self._atom(e.lone_atom) if e.lone_atom is not None else self.number(e)
            for e in key.operands
        ]
        operator = key.operator.removeprefix(UNKNOWN)
        if key.operator == FLOOR:
            return operands[0] // operands[1]
        if operator == "Cast":
            to = helper.tensor_dtype_to_np_dtype(key.details[1])
            with np.errstate(over="ignore", invalid="ignore"):
                result = np.array(operands[0]).astype(to)[()]
            return int(result) if to.kind in "iu" else result
        if isinstance(operands[0], np.floating):
            return FLOATING[operator](*operands)
        return WHOLE[operator](key.details, operands)


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


FLOATING = {"Div": np.divide, "Mul": np.multiply, "Ceil": np.ceil, "Floor": np.floor}
WHOLE = {
    "Add": lambda _, n: sum(n),
    "Mul": lambda _, n: n[0] * n[1],
    "Div": lambda _, n: quotient(*n),
    "Mod": lambda d, n: n[0] - n[1] * quotient(*n) if ("fmod", "1") in d else n[0] % n[1],
    "Abs": lambda _, n: abs(n[0]),
    "Max": lambda _, n: max(n),
    "Min": lambda _, n: min(n),
    "Where": lambda _, n: n[1] if n[0] else n[2],
    **{
        name: lambda _, n, compare=compare: compare(*n)
        for name, compare in {
            "Equal": lambda a, b: a == b,
            "Less": lambda a, b: a < b,
            "GreaterOrEqual": lambda a, b: a >= b,
        }.items()
    },
}


class Drawing:
    """A random graph; of its small integer vectors the lengths are kept, so that all nodes fit."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.nodes: list[object] = []
        self.held: list[TensorProto] = []
        self.types: dict[str, int] = {}
        self._images = ["x"]
        self._vectors: dict[str, int] = {"p": 2}
        self.types["p"] = INT64
        self._add("Cast", ["p"], "p32", INT32, to=INT32)
        self._vectors["p32"] = 2
        for _ in range(rng.randrange(5)):
            self._image()
        for _ in range(rng.randint(1, 3)):
            self._shape()
        for _ in range(rng.randint(3, 14)):
            rng.choice(
                [
                    *(self._arithmetic, self._arithmetic, self._arithmetic, self._one),
                    *(self._moved, self._moved, self._joined, self._chosen),
                    *(self._detour, self._shape),
                ]
            )()

    def _name(self) -> str:
        return f"v{len(self.types)}"

    def _add(self, op: str, inputs: list[str], output: str, element_type: int, **more) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], **more))
        self.types[output] = element_type
        return output

    def _constant(self, values: object, element_type: int = INT64) -> str:
        dtype = helper.tensor_dtype_to_np_dtype(element_type)
        self.held.append(numpy_helper.from_array(np.array(values, dtype), f"k{len(self.held)}"))
        return self.held[-1].name

    def _image(self) -> None:
        rng, source = self._rng, self._rng.choice(self._images)
        name = self._name()
        match rng.randrange(7):
            case 0:
                self._add("Transpose", [source], name, FLOAT, perm=rng.sample(range(4), 4))
            case 1:
                pads = self._constant([rng.randrange(3) for _ in range(8)])
                self._add("Pad", [source, pads], name, FLOAT)
            case 2:
                pool = rng.choice(["MaxPool", "AveragePool"])
                kernel = [rng.randint(1, 3) for _ in range(2)]
                more = {"strides": [rng.randint(1, 3) for _ in range(2)]}
                mode = rng.choice(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
                if mode == "NOTSET":
                    more["pads"] = [rng.randrange(k) for k in (*kernel, *kernel)]
                if pool == "MaxPool" and mode == "NOTSET" and max(kernel) < 3:
                    more["dilations"] = [rng.randint(1, 2) for _ in range(2)]
                self._add(pool, [source], name, FLOAT, kernel_shape=kernel, auto_pad=mode, **more)
            case 3:
                self._add("Concat", [source, source], name, FLOAT, axis=rng.randrange(-4, 4))
            case 4:
                other = self._add("Relu", [source], name, FLOAT)
                inputs = [source, other, self._constant(np.ones((1, 1)), FLOAT)]
                self._add("Sum", rng.sample(inputs, 3), self._name(), FLOAT)
                name = f"v{len(self.types) - 1}"
            case 5:
                axis = self._constant([rng.randrange(-5, 5)])
                inner = self._add("Unsqueeze", [source, axis], name, FLOAT)
                self._add("Squeeze", [inner, axis], self._name(), FLOAT)
                name = f"v{len(self.types) - 1}"
            case 6:
                self._add("Add", [source, self._constant(np.ones((1, 1, 1)), FLOAT)], name, FLOAT)
        self._images.append(name)

    def _shape(self) -> None:
        rng, name = self._rng, self._name()
        if rng.random() < 0.1:
            size = self._add("Size", [rng.choice(self._images)], name, INT64)
            name = self._add("Unsqueeze", [size, self._constant([0])], self._name(), INT64)
            self._vectors[name] = 1
            return
        start, end = rng.choice([(0, 4), (1, 3), (-3, 4), (2, -1), (-1, 9)])
        self._add("Shape", [rng.choice(self._images)], name, INT64, start=start, end=end)
        self._vectors[name] = len(range(4)[start:end])
        if rng.random() < 0.5:
            cast = self._add("Cast", [name], self._name(), INT32, to=INT32)
            self._vectors[cast] = self._vectors[name]

    def _pair(self) -> tuple[str, str, int, int]:
        """Two vectors of one type that fit, the second perhaps constant; their type and length."""
        rng = self._rng
        one = rng.choice(list(self._vectors))
        length, of = self._vectors[one], self.types[one]
        fits = [
            v
            for v, n in self._vectors.items()
            if self.types[v] == of and (n in (1, length) or length == 1)
        ]
        other = rng.choice(fits)
        if rng.random() < 0.5:
            other = self._constant([rng.randint(-4, 4) for _ in range(length)], of)
            return one, other, of, length
        return one, other, of, max(length, self._vectors[other])

    def _arithmetic(self) -> None:
        rng = self._rng
        one, other, of, length = self._pair()
        op = rng.choice("Add Sub Sub Mul Max Min Div Div Div Mod Mod".split())
        more = {"fmod": rng.randrange(2)} if op == "Mod" else {}
        if op in ("Div", "Mod"):
            other = self._constant([rng.choice([1, 2, 2, 3, 4, -2]) for _ in range(length)], of)
            if rng.random() < 0.2:
                positive = self._add("Abs", [one], self._name(), of)
                other = self._add("Add", [positive, self._constant([1], of)], self._name(), of)
                length = self._vectors[one]
        inputs = [one, other] if op in ("Div", "Mod") or rng.random() < 0.5 else [other, one]
        name = self._add(op, inputs, self._name(), of, **more)
        self._vectors[name] = length

    def _one(self) -> None:
        rng = self._rng
        source = rng.choice(list(self._vectors))
        of = self.types[source]
        op = rng.choice("Neg Abs Identity Cast".split())
        more = {}
        if op == "Cast":
            of = more["to"] = INT32 if of == INT64 else INT64
        name = self._add(op, [source], self._name(), of, **more)
        self._vectors[name] = self._vectors[source]

    def _moved(self) -> None:
        rng = self._rng
        source = rng.choice(list(self._vectors))
        length, of, name = self._vectors[source], self.types[source], self._name()
        k = self._constant
        match rng.randrange(5):
            case 0:
                at = [rng.randrange(-length, length) for _ in range(rng.randint(1, 3))]
                self._vectors[self._add("Gather", [source, k(at)], name, of, axis=0)] = len(at)
            case 1:
                start, end = rng.randint(-5, 5), rng.choice([rng.randint(-5, 5), 2**63 - 1])
                step = rng.choice([1, 1, 2, -1])
                if step < 0:
                    end = rng.choice([-(2**63), 0])
                left = len(range(length)[start:end:step])
                inputs = [source, k([start]), k([end]), k([0]), k([step])]
                self._add("Slice", inputs, name, of)
                if left:
                    self._vectors[name] = left
            case 2:
                inner = self._add("Unsqueeze", [source, k([rng.randrange(2)])], name, of)
                inner = self._add("Transpose", [inner], self._name(), of)
                flat = self._add("Reshape", [inner, k([-1])], self._name(), of)
                self._vectors[flat] = length
            case 3:
                if length > 1:
                    first = rng.randrange(1, length)
                    outputs = [name, f"{name}b"]
                    split = k([first, length - first])
                    self.nodes.append(helper.make_node("Split", [source, split], outputs, axis=0))
                    self.types.update(dict.fromkeys(outputs, of))
                    self._vectors.update(zip(outputs, (first, length - first), strict=True))
            case 4:
                inner = self._add("Expand", [source, k([2, length])], name, of)
                flat = self._add("Flatten", [inner], self._name(), of, axis=0)
                flat = self._add("Squeeze", [flat, k([0])], self._name(), of)
                if length < 4:
                    self._vectors[flat] = 2 * length

    def _joined(self) -> None:
        rng = self._rng
        of = self.types[rng.choice(list(self._vectors))]
        parts = [v for v, n in self._vectors.items() if self.types[v] == of and n < 5]
        if parts:
            chosen = rng.choices(parts, k=2)
            name = self._add("Concat", chosen, self._name(), of, axis=0)
            self._vectors[name] = sum(self._vectors[v] for v in chosen)

    def _chosen(self) -> None:
        one, other, of, length = self._pair()
        if self._rng.random() < 0.5:
            condition = self._constant([self._rng.random() < 0.5] * length, TensorProto.BOOL)
        else:
            op = self._rng.choice(["Equal", "Less", "GreaterOrEqual"])
            condition = self._add(op, [one, other], self._name(), TensorProto.BOOL)
        name = self._add("Where", [condition, one, other], self._name(), of)
        self._vectors[name] = length

    def _detour(self) -> None:
        rng = self._rng
        source = rng.choice(list(self._vectors))
        of, to = rng.choice([FLOAT, DOUBLE]), rng.choice([INT32, INT64])
        value = self._add("Cast", [source], self._name(), of, to=of)
        if rng.random() < 0.8:
            by = self._constant([rng.choice([0.5, 2, 3])], of)
            value = self._add(rng.choice(["Div", "Mul"]), [value, by], self._name(), of)
            value = self._add(rng.choice(["Ceil", "Floor"]), [value], self._name(), of)
        name = self._add("Cast", [value], self._name(), to, to=to)
        self._vectors[name] = self._vectors[source]

    def model(self):
        """The graph, with every value that a node computes as an output of unknown shape."""
        value = helper.make_tensor_value_info
        inputs = [value("x", FLOAT, ["n", 3, "h", "w"]), value("p", INT64, [2])]
        outputs = [value(n, t, None) for n, t in self.types.items() if n != "p"]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.held)
        imports = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def check(rng: Random) -> tuple[int, int]:
    """How many values of a random graph were compared, and how many of them were followed."""
    model = Drawing(rng).model()
    session = running.session(model, running.LEVELS[0])
    scope, *_ = (scope for scope, _ in constant_folding.scopes(model))
    sizes = SymbolicValues(scope)
    compared = followed = 0
    for _ in range(2):
        n, h, w = rng.randint(1, 2), rng.randint(6, 13), rng.randint(6, 13)
        p = np.array([rng.randint(-9, 9) for _ in range(2)], np.int64)
        feeds = {"x": np.ones((n, 3, h, w), np.float32), "p": p}
        names = [v.name for v in model.graph.output]
        try:
            values = dict(zip(names, session.run(None, feeds), strict=True))
        except Exception:  # a window is larger than its image after all
            continue
        evaluator = Evaluator(values | feeds, {"n": n, "h": h, "w": w})
        for name in names:
            dims = sizes.dims(name)
            if dims is not None:
                assert tuple(map(evaluator.number, dims)) == values[name].shape, name
                negative = [d for d in dims if d.nonnegative and evaluator.number(d) < 0]
                assert not negative
            if values[name].dtype.kind != "i":
                continue
            known = sizes.entries(name)
            if known is None:
                continue
            numbers = [evaluator.number(e) for e in known]
            if any(abs(v) >= LIMIT for v in (*numbers, *values[name].flat)):
                break  # more than a size can be; what is behind it is wrong in the model itself
            assert numbers == values[name].reshape(-1).tolist(), (name, known)
            assert sizes.shape_of_entries(name) == values[name].shape
            assert all(v >= 0 for e, v in zip(known, numbers, strict=True) if e.nonnegative)
            compared += 1
            followed += any(
                not isinstance(a.key, ElementKey) for e in known for t in e.terms for a in t
            )
    return compared, followed


@given(rng=sampling.randoms)
@settings(max_examples=60, deadline=None)
def test_expressions_are_what_the_run_comes_to(rng):
    check(rng)


def test_the_random_graphs_do_test_something():
    totals = [check(Random(seed)) for seed in range(60)]
    assert sum(compared for compared, _ in totals) > 600
    assert sum(followed for _, followed in totals) > 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_expressions_are_what_the_run_comes_to_at_length(seed):
    rng = Random(seed)
    for _ in range(500):
        check(rng)
