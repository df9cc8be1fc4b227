"""One process and its registration: threads, forks, copies of the package, other operators, Ctrl-C."""

from __future__ import annotations

import alone
import pytest

pytest.importorskip("onnxruntime_extensions")


def test_a_fork_goes_on_with_a_session_and_makes_its_own():
    alone.python("""
        import os
        import onnxruntime
        import onnx_spatial
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # onnxruntime's threads do not outlive a fork
        session = onnx_spatial.InferenceSession(model, options, mode="custom-op")
        (expected,) = session.run(None, feeds)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                again = onnx_spatial.InferenceSession(model, options, mode="custom-op")
                for each in (session, again):
                    assert (each.run(None, feeds)[0] == expected).all()
                    try:
                        each.run(None, wrong)
                    except onnx_spatial.OperatorError:
                        code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (session.run(None, feeds)[0] == expected).all()
    """)


def test_a_copy_of_another_version_is_told_so():
    alone.python("""
        import onnx_spatial, onnxruntime_extensions
        onnx_spatial.InferenceSession(model, mode="custom-op")
        onnxruntime_extensions._onnx_spatial_operators.version = 99
        try:
            onnx_spatial.InferenceSession(model, mode="custom-op")
        except onnx_spatial.UsageError as error:
            assert "another version of onnx-spatial" in str(error)
        else:
            raise AssertionError
    """)


FOREIGN = """
    import onnx, onnxruntime, onnxruntime_extensions
    from onnx import helper
    import onnx_spatial

    def extended():
        # Behind the operator stand one of the program's own and one that the extensions bring.
        made = onnx.ModelProto()
        made.CopyFrom(model)
        made.graph.node[0].output[0] = "moved"
        made.graph.node.append(helper.make_node("Twice", ["moved"], ["y"], domain="ai.onnx.contrib"))
        made.graph.node.append(
            helper.make_node("StringUpper", ["text"], ["upper"], domain="ai.onnx.contrib"))
        made.graph.input.append(helper.make_tensor_value_info("text", 8, ["n"]))
        made.graph.output.append(helper.make_tensor_value_info("upper", 8, ["n"]))
        made.opset_import.append(helper.make_opsetid("ai.onnx.contrib", 1))
        return made

    def check(session):
        y, upper = session.run(None, {**feeds, "text": np.array(["abc"], object)})
        assert y.sum() == 2 * x.sum() and upper.tolist() == ["ABC"]

    def declare():
        from onnxruntime_extensions import PyOp, onnx_op

        @onnx_op(op_type="Twice", inputs=[PyOp.dt_float], outputs=[PyOp.dt_float])
        def twice(values):
            return values * 2
"""


@pytest.mark.parametrize(
    "program",
    [
        """
        declare()  # the program's own way, before it knows of us
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
        check(onnx_spatial.InferenceSession(extended(), options, mode="custom-op"))
        check(onnx_spatial.InferenceSession(extended(), options, mode="custom-op"))
        """,
        """
        declare()  # ours are there, then the program registers the library by itself
        onnx_spatial.InferenceSession(model, mode="custom-op")
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
        onnx_spatial.custom_ops.register(options)
        prepared = onnx_spatial.custom_ops.prepare(extended()).SerializeToString()
        check(onnxruntime.InferenceSession(prepared, options))
        """,
        """
        declare()
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
        onnxruntime.InferenceSession(
            onnx_spatial.convert(extended(), verify=False).model.SerializeToString(), options)
        try:
            onnx_spatial.custom_ops.register(options)
        except onnx_spatial.UsageError as error:
            assert "instead of options.register_custom_ops_library" in str(error)
        else:
            raise AssertionError
        """,
    ],
    ids=["own options", "library after ours", "library before ours"],
)
def test_other_python_operators_go_on_working(program):
    alone.python(FOREIGN + program)


def test_registering_again_changes_nothing_nor_does_it_slow_child_processes_down():
    alone.python("""
        import os
        import onnxruntime
        from onnx_spatial import custom_ops
        prepared = custom_ops.prepare(model).SerializeToString()
        options, more = onnxruntime.SessionOptions(), onnxruntime.SessionOptions()
        for each in (options, options, more, options, more):
            custom_ops.register(each)
        for each in (options, more):
            session = onnxruntime.InferenceSession(prepared, each)
            assert session.run(None, feeds)[0].sum() == x.sum()
        # onnxruntime-extensions asks for the slow protobuf in the environment.
        assert "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION" not in os.environ
    """)


def test_two_copies_of_the_package_share_one_registration():
    alone.python("""
        import sys
        import onnx_spatial
        first = onnx_spatial.InferenceSession(model, mode="custom-op")
        kept = {n: sys.modules.pop(n) for n in list(sys.modules) if n.split(".")[0] == "onnx_spatial"}
        import onnx_spatial as copy
        assert copy is not kept["onnx_spatial"]
        second = copy.InferenceSession(model, mode="custom-op")
        for package, session in ((kept["onnx_spatial"], first), (copy, second)):
            assert session.run(None, feeds)[0].sum() == x.sum()
            try:
                session.run(None, wrong)
            except package.OperatorError as error:  # its own, not the other copy's
                assert "'site' in main graph" in str(error)
            else:
                raise AssertionError
    """)


def test_whatever_goes_wrong_in_an_operator_names_the_node_and_the_session_goes_on():
    alone.python("""
        import logging
        import onnxruntime
        from onnx_spatial import InferenceSession, OperatorError, custom_ops
        from onnx_spatial.operators.strided_copies import Plan
        session, real = InferenceSession(model, mode="custom-op"), Plan.run
        huge = {**feeds, "p2": np.array([[0, 2**41], [0, 0]])}
        broken = lambda self, *more: 1 / 0
        for kind, given, run in ((MemoryError, huge, real), (OperatorError, feeds, broken)):
            Plan.run = run
            try:
                session.run(None, given)
            except kind as error:
                assert str(error).startswith("SpaceToBatchND 'site' in main graph: "), error
            else:
                raise AssertionError
            Plan.run = real
            assert session.run(None, feeds)[0].sum() == x.sum()

        def fail(record):
            raise RuntimeError

        logging.getLogger("onnx_spatial.custom_ops").addFilter(fail)
        options = onnxruntime.SessionOptions()
        custom_ops.register(options)
        own = onnxruntime.InferenceSession(custom_ops.prepare(model).SerializeToString(), options)
        try:
            own.run(None, wrong)
        except Exception as error:
            assert "must not be negative" in str(custom_ops.explain(error))
        else:
            raise AssertionError
    """)


@pytest.mark.parametrize("runs", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_valid_and_invalid_runs_on_many_threads(runs):
    alone.python(
        f"""
        import threading
        from random import Random
        from definitions import space_to_batch
        from onnx_spatial import InferenceSession, OperatorError
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        opened = lambda: InferenceSession(model, options, mode="custom-op")
        sessions, found = [opened(), opened()], []

        def right(rng):
            pads = 2 * np.array([[rng.randint(0, 2), rng.randint(0, 2)], [0, rng.randint(0, 2)]])
            image = x + rng.randrange(1000)  # no other thread's
            (y,) = rng.choice(sessions).run(None, {{"x": image, "p1": block, "p2": pads}})
            return (y == space_to_batch(image, block.tolist(), pads.tolist())).all()

        def wrong(rng):
            amount = rng.randint(1, 10**6)
            try:
                rng.choice(sessions).run(None, {{**feeds, "p2": none - amount}})
            except OperatorError as error:  # its own, not that of another thread
                return f"'site' in main graph: SpaceToBatch: paddings[0][0] is -{{amount}};" in (
                    str(error))

        def work(number):
            rng = Random(number)
            for turn in range({runs}):
                if turn % 20 == 19:  # sessions are made while others run
                    sessions[number % 2] = opened()
                try:
                    found.append(rng.choice([right, wrong])(rng))
                except Exception as error:
                    found.append(repr(error))

        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(found) == 8 * {runs} and all(each == True for each in found), found
    """,
        timeout=1800,
    )


@pytest.mark.parametrize("when", ["in an operator", "between operators"])
def test_ctrl_c_is_a_keyboard_interrupt_and_the_session_goes_on(when):
    # The signal arrives while an operator runs, or in onnxruntime just before it calls the next.
    alone.python(f"""
        import os, signal
        import onnx_spatial
        from onnx_spatial.operators.strided_copies import Plan
        session = onnx_spatial.InferenceSession(model, mode="custom-op")
        before = signal.getsignal(signal.SIGINT)
        real = Plan.run

        def interrupted(self, x, *more):
            os.kill(os.getpid(), signal.SIGINT)
            return real(self, x, *more)

        if {when == "in an operator"}:
            Plan.run = interrupted
            run = lambda: session.run(None, feeds)
        else:
            from onnx_spatial.custom_ops import raising

            def run():
                with raising():
                    os.kill(os.getpid(), signal.SIGINT)  # kept, and noticed by the operator
                    session.run(None, feeds)
        for _ in range(3):
            try:
                run()
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError
        assert signal.getsignal(signal.SIGINT) is before
        Plan.run = real
        assert session.run(None, feeds)[0].sum() == x.sum()
    """)


def test_a_flood_of_ctrl_c_does_not_end_the_process():
    alone.python(
        """
        import os, signal, threading, time
        import onnx_spatial
        session = onnx_spatial.InferenceSession(model, mode="custom-op")
        stop = threading.Event()

        def flood():
            while not stop.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.0005)

        # Outside of runs a signal does nothing here, so that only runs are put to the test.
        raised = []
        def handler(number, frame):
            raised.append(number)
        signal.signal(signal.SIGINT, handler)
        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        while len(raised) < 200:
            assert session.run(None, feeds)[0].sum() == x.sum()
        stop.set()
        thread.join()
        """
    )


def test_other_signals_with_a_handler_wait_for_the_end_of_the_run_too():
    alone.python("""
        import os, signal, time
        import onnx_spatial
        from onnx_spatial import operators
        session = onnx_spatial.InferenceSession(model, mode="custom-op")

        class Timeout(Exception):
            pass

        def handler(number, frame):
            raise Timeout

        signal.signal(signal.SIGALRM, handler)
        stopped = 0
        while stopped < 50:
            signal.setitimer(signal.ITIMER_REAL, 0.003)
            try:
                while True:
                    session.run(None, feeds)
            except Timeout:
                stopped += 1
        assert session.run(None, feeds)[0].sum() == x.sum()
    """)
