"""Files of a user's own functions for `jaxtape compare`, most with a fault, and command lines for them."""

import random

from .mutations import TEXTS, damaged

HEAD = """
import sys
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, torch
from jaxtape.torch import Case

class Own(Exception): pass
class Base(BaseException): pass
class Mute(Exception):
    def __str__(self): raise ValueError("no words")
class Net(eqx.Module):
    weight: jax.Array
    def __init__(self, *shape): self.weight = jnp.ones(shape)
    def __call__(self, x): return self.weight @ x
class TorchNet(torch.nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(shape))
    def forward(self, x): return x @ self.weight.T
class Odd:
    def __getattr__(self, name): raise Own(name)
    def __call__(self, x): raise Own(repr(x))
"""
RAISED = (
    *(
        "raise ValueError('bad\\x1b[31m\\nvalue')",
        "raise Own('[/red]')",
        "raise Base",
        "raise Mute",
    ),
    *("raise SystemExit(3)", "sys.exit('bye')", "raise KeyError('k')", "raise MemoryError"),
    *(
        "raise StopIteration",
        "raise GeneratorExit",
        "raise OSError(2, 'gone')",
        "raise TimeoutError",
    ),
    *("assert False", "1 / 0", "import no_such_module", "no_such_name", "[][3]", "raise 3"),
    *("raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])", "x.no_such", "1 + 'a'"),
    *("raise UnicodeDecodeError('utf-8', b'\\xff', 0, 1, 'odd')", "raise RecursionError('deep')"),
    *(
        "raise Own('x' * 10000)",
        "raise Own('\\udc80')",
        "raise NotImplementedError",
        "raise Own(Own)",
    ),
)
RETURNED = (
    *("None", "'text'", "x", "x[None]", "{}", "()", "[x, None]", "object()", "x[7]", "lambda: x"),
    *("3.0", "float('nan')", "x * float('nan')", "x / 0.0", "float(x[0])", "(y for y in [1])"),
    *("np.ones(3)", "torch.ones(3)", "jnp.ones(3)", "(x, (x**2).sum())", "{'a': x, 'b': 1}"),
    *("x.reshape(2, 9)", "x > 0.0", "int(1)", "1j", "x.shape", "True", "type(x)", "ours(x)"),
)
NOT_FUNCTIONS = (
    *(
        "None",
        "3",
        "'text'",
        "{}",
        "()",
        "Odd()",
        "Odd",
        "Net(2, 3)",
        "Net(2, 4)",
        "Net(3)",
        "Net()",
    ),
    *("TorchNet(2, 3)", "TorchNet(4, 2)", "TorchNet(2)", "TorchNet()", "torch.nn.Linear(3, 2)"),
    *(
        "jax.jit(lambda x: x)",
        "print",
        "len",
        "np.sum",
        "torch.sum",
        "jnp.sum",
        "int",
        "eqx.Module",
    ),
    *("eqx.nn.Linear(3, 2, key=jax.random.key(0))", "torch.nn.Module()", "Case", "lambda: 1.0"),
)
INPUTS = (
    *("()", "[np.arange(3.0)]", "None", "3.0", "(None,)", "('a',)", "(np.array(['a']),)", "(3,)"),
    *("(np.array([object()]),)", "(np.arange(3),)", "(np.zeros(0),)", "(np.full(3, np.nan),)"),
    *("(10**400,)", "(1e400,)", "(np.arange(3.0, dtype=np.float16),)", "(np.array(1j),)"),
    *("({'a': np.arange(3.0)},)", "(np.arange(3.0), np.arange(2.0))", "(object(),)", "'abc'"),
    *("lambda: (np.arange(3.0),)", "lambda: 3", "lambda rng: (rng.normal(size=3),)", "Odd()"),
    *("(np.zeros((2, 0, 3)),)", "(jnp.ones(3),)", "(torch.ones(3),)", "({1: 1.0, 'a': 2.0},)"),
    *("(np.ma.masked_array([1.0], [True]),)", "(True,)", "(np.datetime64('2002-07-05'),)"),
)
CASES = (
    *("Case(ours, theirs, lambda rng: x)", "Case(ours, theirs, lambda rng: x, ('a', 'b'))", "3"),
    *("Case(ours, theirs, lambda: x)", "Case(ours, theirs, lambda rng: None)", "None", "Case"),
    *(
        "Case(ours, theirs, x)",
        "Case(None, None, None)",
        "lambda: Case(ours, theirs, lambda rng: x)",
    ),
    *("Case(ours, theirs, lambda rng: x, nodes=(ours, theirs))", "lambda: None", "lambda rng: 3"),
    *(
        "Case(ours, theirs, lambda rng: x, names=3)",
        "Odd()",
        "Case(ours, theirs, lambda rng: x, (1,))",
    ),
)
TOP = (
    *(
        "def",
        "  indented = 1",
        "x = (",
        "'''",
        "return 3",
        "\0",
        "\udc80",
        "# coding: no-such",
        "é = 1",
    ),
    *("from . import near", "await 3", "def __getattr__(name): raise KeyError(name)", "del jax"),
)


def _function(name: str, right: str, random: random.Random, faulty: bool) -> str:
    if not faulty:
        return f"def {name}(x): return {right}"
    match random.randrange(5):
        case 0:
            return f"def {name}(x):\n    {random.choice(RAISED)}"
        case 1 | 2:
            return f"def {name}(x): return {random.choice(RETURNED)}"
        case 3:
            return f"{name} = {random.choice(NOT_FUNCTIONS)}"
    arguments = random.choice(("", "x, y", "*, x", "*x", "x=1", "**x"))
    return f"def {name}({arguments}): return {right}"


def source(random: random.Random) -> bytes:
    """A file with two functions, inputs and a case."""
    count = random.choice((0, 1, 1, 1, 2))
    faults = set(random.sample(("ours", "theirs", "x", "case", "top"), count))
    lines = [
        HEAD,
        _function("ours", "jnp.sum(x**2)", random, "ours" in faults),
        _function("theirs", "(x**2).sum()", random, "theirs" in faults),
        f"x = {random.choice(INPUTS) if 'x' in faults else '(np.arange(3.0),)'}",
        f"case = {random.choice(CASES) if 'case' in faults else CASES[0]}",
    ]
    if "top" in faults:
        at = random.randrange(len(lines) + 1)
        lines.insert(at, random.choice((*TOP, *RAISED)))
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    return damaged(content, random) if random.random() < 0.05 else content


_OPTIONS = {
    "--precisions": ("double", "single"),
    "--ways": ("eager", "func"),
    "--seed": ("1",),
    "--tolerance": ("1e-6", "nan", "inf", "0", "-1"),
    "--out": ("found.json", "out", "m.json/out", ""),
}


def words(file: str, random: random.Random) -> list[str]:
    """The words after `jaxtape` that compare what a file has."""
    if random.random() < 0.4:
        found = [f"{file}:case"]
    else:
        own = {"--jax": "ours", "--torch": "theirs", "--inputs": "x"}
        found = [word for option, name in own.items() for word in (option, f"{file}:{name}")]
    options = {"--precisions": "double", "--ways": "eager"}
    for name in random.sample(list(_OPTIONS), random.choice((0, 0, 1, 2))):
        options[name] = random.choice((*_OPTIONS[name], *_OPTIONS[name], random.choice(TEXTS)))
    found += [word for option in options.items() for word in option]
    if random.random() < 0.05:
        found[random.randrange(len(found))] = random.choice(TEXTS)
    elif random.random() < 0.05:
        found.pop(random.randrange(len(found)))
    return ["compare", *found]
