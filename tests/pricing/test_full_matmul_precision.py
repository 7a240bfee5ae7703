"""Products in single precision, as on an accelerator: every entry point asks for all bits, if none chose."""

import inspect
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import pytest

import calibration
import pricing
from calibration.many import workers
from jaxtape.jax_settings.matmul_precision import (
    chosen_precision,
    full_matmul_precision,
    matmul_precision_context,
)
from pricing import HullWhite, fbsde, revalue
from pricing.portfolio.sweep import tile_workers
from pricing.portfolio.sweep.groups import Tile, TradeGroup

PACKAGES = pricing, fbsde, calibration
WITHIN = {
    "risk": "by RiskEngine",
    **dict.fromkeys(["explain", "explain_by_currency"], "by RiskEngine"),
    "calibrate_market": "by calibrate",
    "calibrate_many": "in each worker",
    "calibrate_table": "by calibrate_many",
    "fit": "what it returns does",
    "export": "while it traces, for all platforms",
    **dict.fromkeys(
        ["coupled", "explain_total", "from_product", "parametric", "load", "save", "write_report"],
        "no products",
    ),
    **dict.fromkeys(
        ["join_optimizers", "levenberg_marquardt", "merge_shards", "read_jobs"], "no products"
    ),
}
METHODS = [
    *(pricing.RiskEngine.__call__, calibration.Calibration.prior, revalue, workers._ends_on),
    *(fbsde.Solution._derivative, fbsde.Solution.portfolio),
    calibration.fit(HullWhite(0.03, 0.05, 0.01)),
]
FUNCTIONS = {
    f"{package.__name__}.{name}": function
    for package in PACKAGES
    for name, function in vars(package).items()
    if inspect.isfunction(function) and name not in WITHIN and name[0] != "_"
}


@full_matmul_precision
def precision_of_a_product() -> str:
    (product,) = jax.make_jaxpr(lambda a: a @ a)(jnp.ones((2, 2))).eqns
    return str(product.params["precision"])


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def test_all_bits_are_kept(on_gpu):
    assert "HIGHEST" in precision_of_a_product()
    assert jax.config.jax_default_matmul_precision is None


def test_what_was_chosen_is_kept(on_gpu):
    with jax.default_matmul_precision("tensorfloat32"):
        assert "HIGHEST" not in precision_of_a_product()


def test_on_a_cpu_programs_are_as_they_were():
    assert precision_of_a_product() == "None"


def test_the_threads_of_a_book_have_the_precision_of_their_caller():
    method = Mock(program_size=1)
    group = Mock(spec=TradeGroup, method=method, tile_bytes=0)
    group.tiles = lambda: iter([Mock(spec=Tile)])
    with matmul_precision_context():
        ran = tile_workers.run_tiles([group], lambda group, tile: chosen_precision(), 1)
    assert [future.result() for _, futures in ran for future in futures] == ["highest"]


@pytest.mark.parametrize(
    "entry",
    [*FUNCTIONS.values(), *METHODS],
    ids=[*FUNCTIONS, *(method.__qualname__ for method in METHODS)],
)
def test_every_entry_point_asks_for_it(entry):
    """A new function of a package asks for it, or says in `WITHIN` why it need not."""
    codes = {entry.__code__}
    while entry := getattr(entry, "__wrapped__", None):
        codes.add(entry.__code__)
    assert precision_of_a_product.__code__ in codes
