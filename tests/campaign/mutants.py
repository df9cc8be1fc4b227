"""Damaged model files, each made of a seed's name and a number alone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import message_mutants
import seeds
import wire_mutants


@dataclass(frozen=True)
class Mutant:
    """A damaged model.

    Attributes:
        files: by name, the model and its external data.
        damage: what was done to it.
        by_command: convert by the command line.
    """

    files: seeds.Files
    damage: str
    by_command: bool


def make(seed: str, number: int) -> Mutant:
    """The `number`-th damaged file of a seed."""
    rng = Random(f"{seed} {number}")
    files = dict(seeds.files(seed))
    by_command = rng.random() < 0.2
    damage, data = "", files[seeds.MODEL]
    way = rng.random()
    if way < 0.2:
        damage, data = wire_mutants.of_bytes(rng, data, _other(rng))
    elif way < 0.45:
        damage, data = wire_mutants.of_fields(rng, data, _other(rng))
    else:
        damage, data = message_mutants.of_messages(rng, data)
        if rng.random() < 0.05:
            more, data = wire_mutants.of_bytes(rng, data or b"\0", _other(rng))
            damage += "+" + more
    files[seeds.MODEL] = data
    if len(files) > 1 and rng.random() < 0.15:
        name = rng.choice([name for name in files if name != seeds.MODEL])
        cut = rng.randrange(len(files[name]) + 1)
        damage += "+external data"
        if cut % 4:
            files[name] = files[name][:cut]
        else:
            del files[name]
    return Mutant(files, damage, by_command)


def _other(rng: Random) -> bytes:
    small = [name for name in seeds.NAMES if name in seeds.BUILDERS and name != "embedded_weights"]
    return seeds.files(rng.choice(small))[seeds.MODEL]
