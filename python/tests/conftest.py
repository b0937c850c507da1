import pytest
import raddle


@pytest.fixture(params=["cpu", "sim:7"])
def device(request):
    """Each test that takes it runs on the CPU and on the simulator, which runs work late and in an order of its own."""
    return raddle.device(request.param)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")
