"""Hypothesis profiles: the default run is the same every time, `--hypothesis-profile=random` is not."""

from hypothesis import HealthCheck, settings

from onnx_spatial import custom_ops

settings.register_profile(
    "default",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("random", settings.get_profile("default"), derandomize=False)
settings.load_profile("default")

# onnxruntime-extensions, imported by a test, would have every process that tests start parse models
# with protobuf's slow implementation. Imported by us it does not.
custom_ops.available()
