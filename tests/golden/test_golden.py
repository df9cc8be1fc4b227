"""What must not change while everything inside is redesigned: results, and numbers of nodes.

Each subject is converted through the public interface, and runs in onnxruntime with optimisations off
and on. What comes out is compared with what TensorFlow and OpenVINO recorded or with the definitions in
`tests/definitions.py`: bit for bit where data only moves.

    pytest tests/golden -n 2
    python tests/golden/test_golden.py     writes node_counts.json anew, and says what changed
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":  # what pytest's `pythonpath` does
    sys.path[:0] = [str(folder) for folder in Path(__file__).parents[1:3]]

import pytest
import running
import structure
from adapter import plan
from golden.subjects import Subject, subjects

COUNTS = Path(__file__).parent / "node_counts.json"
SUBJECTS = subjects()


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return json.loads(COUNTS.read_text("utf-8"))


@pytest.mark.parametrize("subject", SUBJECTS, ids=repr)
def test_results_and_number_of_nodes(subject, counts):
    assert subject.name in counts, "not counted: run python tests/golden/test_golden.py"
    assert check(subject) == counts[subject.name]


def test_every_subject_is_counted_and_nothing_else(counts):
    assert counts.keys() == {subject.name for subject in SUBJECTS}


def check(subject: Subject) -> int:
    """Check the results with onnxruntime's optimisations off and on; return the number of nodes.

    The nodes of subgraphs and functions count, Constants do not.
    """
    built = subject.build()
    converted = plan(built.model, **subject.options)
    assert not converted.refused
    model = converted.model or built.model
    assert subject.options.get("mode") == "function" or not structure.spatial(model)
    for level in running.LEVELS:
        session = running.session(model, level, built.settings)
        for feeds, right in built.runs:
            right(running.run_session(session, dict(feeds)))
    return sum(node.op_type != "Constant" for node in structure.nodes(model))


def main() -> None:
    old = json.loads(COUNTS.read_text("utf-8"))
    new = {subject.name: check(subject) for subject in SUBJECTS}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            print(f"{name}: {old.get(name)} -> {new.get(name)}")
    COUNTS.write_text(json.dumps(new, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
