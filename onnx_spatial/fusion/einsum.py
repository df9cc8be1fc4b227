"""Read the equation of an Einsum."""

from __future__ import annotations


def terms(equation: str) -> tuple[list[str], str]:
    """Return the letters of the operands of an Einsum, and of its result; none with an ellipsis."""
    equation = equation.replace(" ", "")
    left, arrow, result = equation.partition("->")
    if "." in equation:
        return [], ""
    if not arrow:
        letters = left.replace(",", "")
        result = "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    return left.split(","), result
