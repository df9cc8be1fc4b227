"""One process and its registration: threads, forks, copies of the package, other operators, Ctrl-C."""

import programs
import pytest

from onnx_spatial import custom_ops

extended = pytest.mark.skipif(not custom_ops.available(), reason="needs onnxruntime-extensions")


@extended
def test_a_fork_goes_on_with_a_session_and_makes_its_own():
    programs.assert_runs("""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # onnxruntime's threads do not outlive a fork
        session = opened(options)
        (expected,) = session.run(None, feeds)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for each in (session, opened(options)):
                    assert (each.run(None, feeds)[0] == expected).all()
                    with pytest.raises(onnx_spatial.OperatorError):
                        each.run(None, wrong)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (session.run(None, feeds)[0] == expected).all()
    """)


FOREIGN = """
    import onnx, onnxruntime_extensions

    def extended():
        # Behind the operator stand one of the program's own and one that the extensions bring.
        made = onnx.ModelProto()
        made.CopyFrom(model)
        made.graph.node[0].output[0] = "moved"
        own = {"domain": "ai.onnx.contrib"}
        made.graph.node.add(op_type="Twice", input=["moved"], output=["y"], **own)
        made.graph.node.add(op_type="StringUpper", input=["text"], output=["upper"], **own)
        made.graph.input.append(onnx.helper.make_tensor_value_info("text", 8, ["n"]))
        made.graph.output.append(onnx.helper.make_tensor_value_info("upper", 8, ["n"]))
        made.opset_import.add(version=1, **own)
        return made

    def check(session):
        y, upper = session.run(None, {**feeds, "text": np.array(["abc"], object)})
        assert y.sum() == 2 * x.sum() and upper.tolist() == ["ABC"]

    @onnxruntime_extensions.onnx_op(op_type="Twice", inputs=[1], outputs=[1])  # 1: float
    def twice(values):
        return values * 2

    def registered():
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
        return options
"""


@extended
@pytest.mark.parametrize(
    "program",
    [
        """
        options = registered()  # the program's own way, before it knows of us
        for _ in range(2):
            check(onnx_spatial.InferenceSession(extended(), options, mode="custom-op"))
        """,
        """
        opened()  # ours are there, then the program registers the library by itself
        options = registered()
        onnx_spatial.custom_ops.register(options)
        prepared = onnx_spatial.custom_ops.prepare(extended()).SerializeToString()
        check(onnxruntime.InferenceSession(prepared, options))
        """,
        """
        options = registered()
        lowered = onnx_spatial.convert(extended(), verify=False).model
        onnxruntime.InferenceSession(lowered.SerializeToString(), options)
        words = "instead of options.register_custom_ops_library"
        with pytest.raises(onnx_spatial.UsageError, match=words):
            onnx_spatial.custom_ops.register(options)
        """,
    ],
    ids=["own options", "library after ours", "library before ours"],
)
def test_other_python_operators_go_on_working(program):
    programs.assert_runs(FOREIGN, program)


@extended
def test_it_is_loaded_late_registered_once_and_by_one_version_and_slows_no_child_processes_down():
    programs.assert_runs("""
        assert not any(m.startswith("onnx_spatial.custom_ops") for m in sys.modules)
        onnx_spatial.InferenceSession
        assert "onnxruntime_extensions" not in sys.modules
        from onnx_spatial import custom_ops
        prepared = custom_ops.prepare(model).SerializeToString()
        options, more = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
        for each in (options, options, more, options, more):
            custom_ops.register(each)
        for each in (options, more):
            works(onnxruntime.InferenceSession(prepared, each))
        # onnxruntime-extensions asks for the slow protobuf in the environment.
        assert "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION" not in os.environ
        import onnxruntime_extensions
        onnxruntime_extensions._onnx_spatial_operators.version = 99
        with pytest.raises(onnx_spatial.UsageError, match="another version of onnx-spatial"):
            opened()
    """)


@extended
def test_two_copies_of_the_package_share_one_registration():
    programs.assert_runs("""
        first = opened()
        kept = {n: sys.modules.pop(n) for n in list(sys.modules) if n.split(".")[0] == "onnx_spatial"}
        import onnx_spatial as copy
        assert copy is not kept["onnx_spatial"]
        second = copy.InferenceSession(model, mode="custom-op")
        for package, session in ((kept["onnx_spatial"], first), (copy, second)):
            works(session)
            with pytest.raises(package.OperatorError, match="'site' in main graph"):
                session.run(None, wrong)  # its own error, not the other copy's
    """)


@extended
def test_whatever_goes_wrong_in_an_operator_names_the_node_and_the_session_goes_on():
    programs.assert_runs("""
        import logging
        from onnx_spatial import OperatorError, custom_ops
        from onnx_spatial.operators.strided_copies import Plan
        session, real = opened(), Plan.run
        huge = {**feeds, "p2": np.array([[0, 2**41], [0, 0]])}
        broken = lambda self, *more: 1 / 0
        for kind, given, run in ((MemoryError, huge, real), (OperatorError, feeds, broken)):
            Plan.run = run
            with pytest.raises(kind, match="^SpaceToBatchND 'site' in main graph: "):
                session.run(None, given)
            Plan.run = real
            works(session)

        def fail(record):
            raise RuntimeError

        logging.getLogger("onnx_spatial.custom_ops").addFilter(fail)
        options = onnxruntime.SessionOptions()
        custom_ops.register(options)
        own = onnxruntime.InferenceSession(custom_ops.prepare(model).SerializeToString(), options)
        with pytest.raises(Exception) as caught:
            own.run(None, wrong)
        assert "must not be negative" in str(custom_ops.explain(caught.value))
    """)


@extended
@pytest.mark.parametrize("runs", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_valid_and_invalid_runs_on_many_threads(runs):
    programs.assert_runs(f"RUNS = {runs}", THREADS, timeout=1800)


THREADS = """
import threading
from random import Random
from definitions import space_to_batch
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
sessions, found = [opened(options), opened(options)], []

def right(rng):
    pads = 2 * np.array([[rng.randint(0, 2), rng.randint(0, 2)], [0, rng.randint(0, 2)]])
    image = x + rng.randrange(1000)  # no other thread's
    (y,) = rng.choice(sessions).run(None, {"x": image, "p1": block, "p2": pads})
    return (y == space_to_batch(image, block.tolist(), pads.tolist())).all()

def refused(rng):
    amount = rng.randint(1, 10**6)
    try:
        rng.choice(sessions).run(None, {**feeds, "p2": none - amount})
    except onnx_spatial.OperatorError as error:  # its own, not that of another thread
        return f"'site' in main graph: SpaceToBatch: paddings[0][0] is -{amount};" in str(error)

def work(number):
    rng = Random(number)
    for turn in range(RUNS):
        if turn % 20 == 19:  # sessions are made while others run
            sessions[number % 2] = opened(options)
        try:
            found.append(rng.choice([right, refused])(rng))
        except Exception as error:
            found.append(repr(error))

workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
assert len(found) == 8 * RUNS and all(each == True for each in found), found
"""


@extended
def test_ctrl_c_is_a_keyboard_interrupt_and_the_session_goes_on():
    # The signal arrives while an operator runs, or in onnxruntime just before it calls the next.
    programs.assert_runs("""
        import signal
        from onnx_spatial.operators.strided_copies import Plan
        session, before, real = opened(), signal.getsignal(signal.SIGINT), Plan.run

        def interrupted(self, x, *more):
            os.kill(os.getpid(), signal.SIGINT)
            return real(self, x, *more)

        for _ in range(3):
            Plan.run = interrupted
            with pytest.raises(KeyboardInterrupt):
                session.run(None, feeds)
            Plan.run = real
            with pytest.raises(KeyboardInterrupt), onnx_spatial.custom_ops.raising():
                os.kill(os.getpid(), signal.SIGINT)  # kept, and noticed by the operator
                session.run(None, feeds)
        assert signal.getsignal(signal.SIGINT) is before
        works(session)
    """)


@extended
def test_signals_with_a_handler_wait_for_the_end_of_the_run():
    programs.assert_runs("""
        import signal, threading, time

        class Timeout(Exception):
            pass

        def handler(*_):
            raise Timeout

        def flood(number, done):
            while not done.is_set():
                os.kill(os.getpid(), number)
                time.sleep(0.003)

        for number in (signal.SIGINT, signal.SIGALRM):
            session, done, stopped = opened(), threading.Event(), 0
            signal.signal(number, handler)
            thread = threading.Thread(target=flood, args=(number, done), daemon=True)
            try:
                thread.start()
                while True:
                    works(session)
            except Timeout:
                pass
            while stopped < 50:
                try:
                    while True:
                        session.run(None, feeds)
                except Timeout:
                    stopped += 1
            signal.signal(number, lambda *_: None)
            done.set()
            works(session)
    """)


# Where onnxruntime-extensions is not installed everything but running Python operators works

BLOCKED = "sys.modules['onnxruntime_extensions'] = None  # importing it fails from here on"


def test_without_extensions_python_operators_say_what_is_missing_and_the_rest_goes_on():
    programs.assert_runs(
        BLOCKED,
        """
        assert onnx_spatial.convert(model).verification
        works(onnx_spatial.InferenceSession(model))
        assert not onnx_spatial.custom_ops.available()
        prepared = onnx_spatial.custom_ops.prepare(model)  # it can be written, for another machine
        assert onnx_spatial.convert(model, mode="custom-op", verify=False).changed
        works(onnx_spatial.InferenceSession(prepared))
        assert onnx_spatial.custom_ops.explain(ValueError()) is None
        for call in (
            lambda: opened(),
            lambda: onnx_spatial.custom_ops.register(onnxruntime.SessionOptions()),
            lambda: onnx_spatial.convert(model, mode="custom-op"),
            lambda: onnx_spatial.verify(model, prepared),
        ):
            with pytest.raises(onnx_spatial.UsageError, match="pip install onnxruntime-extensions"):
                call()
    """,
    )
