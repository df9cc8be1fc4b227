"""What must not change while everything inside is redesigned: results, and numbers of nodes.

Each subject is converted through the public interface, and runs in onnxruntime with optimisations off
and on. What comes out is compared with what TensorFlow and OpenVINO recorded or with the definitions in
`tests/definitions.py`: bit for bit where data only moves.

    pytest tests/golden -n 2
    python tests/golden/renew_node_counts.py     after a change that is meant to change them
"""

from __future__ import annotations

import pytest
from golden.checking import check, recorded_counts
from golden.subjects import subjects

SUBJECTS = subjects()


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return recorded_counts()


@pytest.mark.parametrize("subject", SUBJECTS, ids=repr)
def test_results_and_number_of_nodes(subject, counts):
    assert check(subject) == counts[subject.name]


def test_every_subject_is_counted_and_nothing_else(counts):
    assert list(counts) == [subject.name for subject in SUBJECTS]
