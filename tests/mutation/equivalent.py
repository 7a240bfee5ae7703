"""Mutants that do what the module does: by module, code and changed code, why no test can tell them."""

_ONE_DATE = "there is one date, and an index beyond the last is the last"

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "pricing/estimators/best_of.py",
        "expiry = product.fixings[-1]",
        "expiry = product.fixings[1]",
    ): _ONE_DATE,
    (
        "pricing/estimators/best_of.py",
        "return model.discount(expiry) * pathwise_then_score(payoff, terms, log_spot, draw.normals[0])",
        "return model.discount(expiry) * pathwise_then_score(payoff, terms, log_spot, draw.normals[1])",
    ): _ONE_DATE,
    (
        "pricing/estimators/points.py",
        "forward = model.forward(product.fixings[0])",
        "forward = model.forward(product.fixings[1])",
    ): _ONE_DATE,
    (
        "pricing/estimators/points.py",
        "mean, variance = (walk.mean[0], walk.variance[0])",
        "mean, variance = (walk.mean[0], walk.variance[1])",
    ): _ONE_DATE,
    (
        "pricing/estimators/one_step_survival.py",
        "start = (jnp.zeros_like(dates.mean[0]), jnp.ones_like(dates.mean[0]))",
        "start = (jnp.zeros_like(dates.mean[1]), jnp.ones_like(dates.mean[0]))",
    ): "the steps to all dates have one shape",
    (
        "jaxtape/schedules/online.py",
        "short = itertools.takewhile(lambda n: n < longest, (beta(s, r) for r in itertools.count()))",
        "short = itertools.takewhile(lambda n: n <= longest, (beta(s, r) for r in itertools.count()))",
    ): "one more length than is asked for",
}
