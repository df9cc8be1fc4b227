"""Look for wrong proofs: prove wrong conversions, and run what is proven.

Three campaigns: models that are wrong for rare sizes with their harmless twins, mutants of conversions,
and deceptions. A wrong proof is the only mistake of `verify` that nobody would see.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import deceptions
import judging
import mutating
import onnx
import targeted
from adapter import prove
from mutating import Form

from onnx_spatial import SpatialError
from onnx_spatial.verification.match.matches import ChangedPart


@dataclass(frozen=True)
class Outcome:
    """What the prover says of a conversion.

    Attributes:
        kind: class of the mistake.
        what: the mistake.
        proven: whether the prover says that both models compute the same.
        wrong: how they differ in a run; None if they do not, as far as was tried.
        found: what is found instead of a proof.
        crash: the exception, if it raised one.
    """

    kind: str
    what: str
    proven: bool = False
    wrong: str | None = None
    found: str = ""
    crash: str = ""


def _asked(
    kind: str,
    what: str,
    models: tuple[onnx.ModelProto, onnx.ModelProto],
    wrong: Callable[[], str | None],
    like: frozenset[bytes] = frozenset(),
) -> Outcome:
    """Ask about two models; parts that are `like` those of a right conversion do not count."""
    try:
        proofs = prove(*models)
    except SpatialError:
        return Outcome(kind, what, found="refused")
    except Exception as error:  # a mistake of the package, which is listed
        return Outcome(kind, what, crash=f"{type(error).__name__}: {error}")
    others = [proof for part, proof in proofs.parts if _content(part) not in like]
    found = [proof.found for proof in others if proof.found is not None]
    found += ["not in two parts"] if proofs.rest else []
    return Outcome(kind, what, not found, None if found else wrong(), (*found, "")[0])


def _content(part: ChangedPart) -> bytes:
    return part.converted().SerializeToString(deterministic=True)


def rare(seed: int) -> list[Outcome]:
    """Ask about a model that is wrong for rare sizes, and its twin; nothing if it is right."""
    made = targeted.draw(seed)
    what = f"{seed}: {made.what}"
    shown = judging.moved(made.original, made.mutant, made.inputs)
    if shown is None:
        return []

    def twin_differs() -> str | None:
        found = (judging.moved(made.original, made.twin, feeds) for feeds in made.others)
        return next((each for each in found if each is not None), None)

    return [
        _asked(made.kind, what, (made.original, made.mutant), lambda: shown),
        _asked("twin", what, (made.original, made.twin), twin_differs),
    ]


def mutants(form: Form, share: int, seed: int) -> list[Outcome]:
    """Ask about mutants of one conversion, so many of each class."""
    found = []
    for kind in form.classes():
        for what, mutant in itertools.islice(form.mutants(kind, seed), share):

            def differs(mutant: onnx.ModelProto = mutant) -> str | None:
                difference = form.difference(mutant)
                return None if difference is None else ": ".join(difference)

            models = form.original, mutant
            found.append(_asked(kind, f"{form}: {what}", models, differs, _contents_of(form)))
    return found


@cache
def _contents_of(form: Form) -> frozenset[bytes]:
    """What stands in the right conversion in the place of each changed part."""
    parts = prove(form.original, mutating.converted(form)).parts
    return frozenset(_content(part) for part, _ in parts)


def deceived(kind: str, numbers: Iterable[int], seed: int) -> list[Outcome]:
    """Ask about deceptions of a class."""
    made = (deceptions.draw(kind, number, seed) for number in numbers)
    return [_asked(kind, d.what, (d.original, d.wrong), d.shown) for d in made if d is not None]


def offenders(found: Sequence[Outcome]) -> list[str]:
    """Name the wrong models that are proven, and those that the prover fails with."""
    return [
        f"{o.kind}: {o.what}\n    {o.crash or o.wrong}"
        for o in found
        if o.crash or (o.proven and o.wrong is not None)
    ]


def table(found: Sequence[Outcome]) -> str:
    """Count what was answered, class by class."""
    answers = ["other formula", "gave up", "not in two parts", "refused"]
    lines = [f"| class | asked about | {' | '.join(answers)} | proven | of these wrong |"]
    lines.append("|---|" + "---|" * (len(answers) + 3))
    for kind in [*dict.fromkeys(o.kind for o in found), "all"]:
        own = [o for o in found if kind in (o.kind, "all")]
        counts = Counter(o.found for o in own)
        proven = [o for o in own if o.proven]
        numbers = (len(own), *(counts[a] for a in answers), len(proven), len(offenders(proven)))
        lines.append(f"| {kind} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)
