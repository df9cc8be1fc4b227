"""Break converted models in every way that is known, for `refuting` and benchmarks/verdicts."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

import judging
import mutations
import numpy as np
import onnx
import subjects
from judging import Judge
from mutations import Mutation, Mutations

import onnx_spatial
from onnx_spatial import SpatialError
from onnx_spatial.conversion.options import STRATEGY_NAMES

#: Lowering (None: the cheapest) and whether to fuse, of the conversions that are broken.
WAYS = ((None, True), *((name, False) for name in (None, *STRATEGY_NAMES)))

#: How many inputs a mutant is tried on.
INPUTS = 24

#: Bytes that a process of a campaign may have.
_MEMORY = 4 * 2**30


@dataclass(frozen=True)
class Form:
    """A way to convert a subject."""

    subject: str
    lowering: str | None
    fuse: bool

    def __str__(self) -> str:
        return f"{self.subject} {self.lowering or 'cheapest'}{'' if self.fuse else ' not fused'}"

    @property
    def original(self) -> onnx.ModelProto:
        """The subject."""
        return subjects.get(self.subject).model

    def convert(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Convert a model in this way, and do not verify it."""
        options = {"prefer": self.lowering, "fuse": self.fuse}
        return onnx_spatial.convert(model, verify=False, **options).model

    def classes(self) -> Mapping[str, Callable[[], Mutations]]:
        """Every class of mistakes, for the converted model."""
        model, original = converted(self), self.original
        feeds = subjects.get(self.subject).random(np.random.default_rng(5))

        def misread() -> Mutations:
            for mutation in mutations.misread(original):
                yield Mutation(mutation.what, lambda m=mutation: self.convert(m.make()))

        return {
            **{kind: lambda make=make: make(model) for kind, make in mutations.CLASSES.items()},
            "parameters misread": misread,
            "major and minor exchanged": lambda: mutations.major_and_minor(model, original),
            "size baked in": lambda: mutations.sizes_baked_in(model, judging.shapes(model, feeds)),
        }

    def mutants(self, kind: str, seed: int) -> Iterator[tuple[str, onnx.ModelProto]]:
        """Mutants of one class in random order: the mistake, and the model."""
        same = converted(self).SerializeToString(deterministic=True)
        places = list(self.classes()[kind]())
        Random(f"{kind} {self} {seed}").shuffle(places)
        for mutation in places:
            try:
                mutant = mutation.make()
            except SpatialError:
                continue  # other parameters than these are refused at once
            if mutant.SerializeToString(deterministic=True) != same:
                yield mutation.what, mutant

    def difference(self, mutant: onnx.ModelProto) -> tuple[str, str] | None:
        """How a mutant differs from the original, as `Judge.difference` says it."""
        return _judge(self).difference(mutant)


@cache
def converted(form: Form) -> onnx.ModelProto:
    """The right conversion."""
    return form.convert(form.original)


@cache
def _judge(form: Form) -> Judge:
    exact = subjects.moves(form.subject)
    rng = np.random.default_rng([ord(c) for c in form.subject])
    subject, kind = subjects.get(form.subject), "bits" if exact else "normal"
    feeds = (subject.random(rng, kind) for _ in range(INPUTS))
    return Judge(form.original, converted(form), feeds, exact)


def forms(names: Iterable[str] = subjects.NAMES) -> Iterator[Form]:
    """Subjects in every form that makes a model of its own."""
    for subject in names:
        seen = set()
        for form in (Form(subject, *way) for way in WAYS):
            try:
                data = converted(form).SerializeToString(deterministic=True)
            except SpatialError:
                continue  # a lowering that does not take it
            if data not in seen:
                seen.add(data)
                yield form


def limit() -> None:
    """As the command does: a wrong size may make onnxruntime ask for all the memory there is."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
