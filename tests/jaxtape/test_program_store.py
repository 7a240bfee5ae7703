"""Programs that outlive the process: found again, never mistaken for another, never in the way."""

import json
import os
import pickle
import resource
import subprocess
import sys
from concurrent.futures import wait
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import typer
from jax.experimental.compilation_cache import compilation_cache
from typer.testing import CliRunner

import jaxtape as jt
from jaxtape.cli.cache import cache
from jaxtape.programs import exported as program
from jaxtape.programs import fingerprint, loaded, store, stored_jit
from jaxtape.programs.exported import _packed
from jaxtape.programs.pytree_json import PytreeSpec
from jaxtape.programs.status import current_status

ROOT = Path(__file__).parents[2]


class Why(eqx.Enumeration):
    fine = "fine"
    odd = "odd"


class Pair(NamedTuple):
    left: Any
    right: Any


class Leg(eqx.Module):
    rate: jax.Array
    name: str = eqx.field(static=True)
    day: date = eqx.field(static=True, default=date(2002, 7, 5))


class Holder(eqx.Module):
    function: Any
    scale: Any = eqx.field(static=True, default=1.0)


def note(name):
    """Note that a function is traced, in an attribute: a global that changes would make another program."""
    note.traced.append(name)  # pyright: ignore[reportFunctionMemberAccess]


note.traced = traced = []  # pyright: ignore[reportFunctionMemberAccess]


def swapped(leg: Leg, *, key):
    note("swapped")
    noise = jnp.sum(jax.random.key_data(key)).astype(leg.rate.dtype)
    result = Why.where(leg.rate[0] > 0, Why.fine, Why.odd)
    found = {"b": leg.rate + noise, "a": [None, 2.5, (leg.rate[0], b"x")]}
    return Pair(Leg(leg.rate / 3, leg.name), (result, found, key))


def called(holder, x):
    note("called")
    return holder.function(x) * holder.scale


def returning_functions(x):
    return Holder(jax.nn.relu), Holder(returning_a_leg), x


def returning_a_leg(x):
    return Leg(x, "EUR"), Holder(jax.nn.relu)


def a_leg(name: str = "EUR", size: int = 3) -> Leg:
    return Leg(jnp.linspace(0.1, 0.2, size), name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A store of its own; `reopened` is what another process would find."""
    monkeypatch.setattr(
        fingerprint, "_STARTED", float("inf")
    )  # sources edited during a run of tests
    traced.clear()
    jt.set_program_store(tmp_path / "programs")
    yield tmp_path / "programs"
    jt.set_program_store(None)


def in_another_process(folder, function=swapped):
    """Return the function as another process has it: nothing is known but what is in the folder."""
    jt.set_program_store(None)
    jt.set_program_store(folder)
    return jt.stored_jit(function)


def equal(a, b) -> bool:
    same = jax.tree.structure(a) == jax.tree.structure(b)
    data = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return same and all(
        np.array_equal(data(x), data(y)) if eqx.is_array(x) else x == y for x, y in leaves
    )


def test_found_again_without_tracing_and_to_the_bit(folder):
    key, jitted = jax.random.key(1), eqx.filter_jit(swapped)(a_leg(), key=jax.random.key(1))
    traced.clear()
    first = in_another_process(folder)(a_leg(), key=key)
    assert traced == ["swapped"] and len(list(folder.iterdir())) == 1
    again = in_another_process(folder)
    second = again(a_leg(), key=key)
    assert traced == ["swapped"]
    assert equal(first, second) and equal(jitted, second)
    assert not first.left.rate.committed and not second.left.rate.committed
    assert second.right[0] == Why.fine and second.left.day == date(2002, 7, 5)
    assert not equal(
        again(a_leg(), key=jax.random.key(2)), second
    )  # other numbers, the same program
    assert traced == ["swapped"]


@pytest.mark.parametrize("is_kept", [True, False], ids=["in a store", "without one"])
def test_a_function_that_is_quick_to_compile_has_options(folder, monkeypatch, is_kept):
    """They are asked for at the top alone: JAX refuses them within another function's program."""
    asked = []
    for module in (stored_jit, program):
        options = lambda _: asked.append("top") or {"xla_embed_ir_in_executable": True}
        monkeypatch.setattr(module, "compiler_options", options)
    jt.set_program_store(folder if is_kept else None)
    quick, key = jt.stored_jit(quick_to_compile=True)(swapped), jax.random.key(1)
    expected = eqx.filter_jit(swapped)(a_leg(), key=key)
    assert equal(quick(a_leg(), key=key), expected)
    assert asked
    asked.clear()
    inside = eqx.filter_jit(lambda leg: quick(leg, key=key).left.rate)(a_leg())
    assert np.array_equal(inside, expected.left.rate)
    assert not asked


def test_a_function_has_a_program_of_its_own_where_it_runs_briefly(folder):
    asked, key = [{}, {"runs_briefly": True}], jax.random.key(1)
    usual, brief = (jt.stored_jit(**how)(swapped)(a_leg(), key=key) for how in asked)
    assert equal(usual, brief)
    contents = [path.read_bytes() for path in folder.glob("*.jaxtape")]
    headers = [json.loads(x[44 : 44 + int.from_bytes(x[40:44], "big")]) for x in contents]
    assert sorted(header["runs_briefly"] for header in headers) == [False, True]


def test_what_the_last_job_used_is_read_ahead(folder):
    end = stored_jit.store_in_use().prefetch("risk")
    first = in_another_process(folder)
    jobs = stored_jit.store_in_use().prefetch("risk")
    expected = first(a_leg(), key=jax.random.key(1))
    jobs()
    end()
    again = in_another_process(folder)
    end = stored_jit.store_in_use().prefetch("risk")
    (program,) = folder.glob("*.jaxtape")
    wait(stored_jit.store_in_use()._prefetched.values())
    program.unlink()
    traced.clear()
    assert equal(again(a_leg(), key=jax.random.key(1)), expected)
    assert not traced
    end()


def test_what_is_in_work_can_be_shown(folder, monkeypatch):
    shown = []
    for name in ("exported", "Program"):
        real = getattr(stored_jit, name)

        def noted(*args, real=real, **how):
            shown.append(current_status())
            return real(*args, **how)

        monkeypatch.setattr(stored_jit, name, noted)
    leg = a_leg()
    assert equal(in_another_process(folder)(leg, key=jax.random.key(1)).left.rate, leg.rate / 3)
    assert shown == ["tracing swapped", ""] and current_status() == ""


@pytest.mark.parametrize("note", [b"\xff\xfe", b"../../x\n\n" + b"0" * 64], ids=["bytes", "names"])
def test_a_hostile_note_is_not_followed(folder, note):
    folder.mkdir()
    (folder / "risk.jaxtape-last").write_bytes(note)
    end = stored_jit.store_in_use().prefetch("risk")
    assert set(stored_jit.store_in_use()._prefetched) <= {"0" * 64}
    assert np.all(in_another_process(folder)(a_leg(), key=jax.random.key(1)).left.rate > 0)
    end()


@pytest.mark.parametrize(
    "leg",
    [
        a_leg("USD"),
        a_leg(size=4),
        Leg(a_leg().rate.astype(jnp.float16), "EUR"),
        Leg(a_leg().rate, "EUR", date(2002, 7, 8)),
    ],
    ids=["static field", "shape", "type", "date"],
)
def test_what_makes_another_program(folder, leg):
    in_another_process(folder)(a_leg(), key=jax.random.key(1))
    in_another_process(folder)(leg, key=jax.random.key(1))
    assert len(traced) == len(list(folder.iterdir())) == 2


def test_a_device_makes_no_other_program(folder):
    """One that is put on a device, and one that is free to be computed with anywhere."""
    placed = Leg(jax.device_put(a_leg().rate, jax.devices()[0]), "EUR")
    for leg in (a_leg(), placed):
        found = in_another_process(folder)(leg, key=jax.random.key(1))
        assert equal(found.left.rate, leg.rate / 3)
    assert len(traced) == len(list(folder.iterdir())) == 1


def test_other_code_settings_and_flags_make_another_program(folder, monkeypatch):
    run = lambda: in_another_process(folder)(a_leg(), key=jax.random.key(1))
    run()
    with jax.default_matmul_precision("highest"):
        run()
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    run()
    monkeypatch.setattr(fingerprint, "_code_of", lambda package: (package, ()))
    run()
    assert len(traced) == len(list(folder.iterdir())) == 4


def test_a_closure_is_its_code_and_what_it_holds(folder):
    def scaled(by):
        return lambda x: by * x

    def run(function, scale=1.0):
        return in_another_process(folder, called)(Holder(function, scale), 2.0 * jnp.ones(2))

    assert run(scaled(2.0))[0] == run(scaled(2.0))[0] == 4.0
    assert len(traced) == 1
    assert run(scaled(3.0))[0] == 6.0
    assert run(lambda x: 5.0 * x)[0] == 10.0
    assert run(jnp.square, 0.5)[0] == 2.0
    assert len(traced) == len(list(folder.iterdir())) == 4


def test_what_no_other_process_understands_is_jitted(folder):
    local = type("Local", (float,), {})(0.5)
    assert in_another_process(folder, called)(Holder(jnp.sin, local), jnp.zeros(())) == 0.0
    jax_s, ours, x = in_another_process(folder, returning_functions)(jnp.ones(2))
    assert jax_s.function is jax.nn.relu and ours.function is returning_a_leg and x[0] == 1.0
    assert not folder.exists()


def test_an_activation_is_returned(folder):
    for _ in range(2):
        leg, network = in_another_process(folder, returning_a_leg)(jnp.ones(2))
        assert leg.rate.tolist() == [1.0, 1.0] and network.function is jax.nn.relu
    assert len(list(folder.iterdir())) == 1


def test_under_transformations_it_is_jitted(folder):
    square = in_another_process(folder, lambda x: x * x)
    assert jax.grad(lambda x: square(x) + square(jnp.ones(())))(3.0 * jnp.ones(())) == 6.0
    np.testing.assert_array_equal(jax.vmap(square)(jnp.arange(3.0)), [0.0, 1.0, 4.0])


def test_a_program_with_a_callback_is_jitted(folder):
    def told(x):
        jax.debug.callback(lambda x: traced.append(float(x)), x)
        return x + 1.0

    assert in_another_process(folder, told)(jnp.ones(())) == 2.0
    jax.effects_barrier()
    assert traced == [1.0] and not folder.exists()


def test_an_error_of_the_function_is_its_own(folder):
    def refused(x):
        raise ValueError(f"x of shape {x.shape}: give another")

    with pytest.raises(ValueError, match="give another"):
        in_another_process(folder, refused)(jnp.ones(2))


def words_of_everything() -> str:
    parts = (
        swapped,
        a_leg(),
        {1.5: {"b", "a"}},
        jnp.sin,
        Pair(lambda x: x, Why.odd),
        np.dtype("f4"),
    )
    return json.dumps([PytreeSpec(part).json for part in parts])


@pytest.mark.repeat
def test_the_words_are_the_same_in_another_process():
    code = f"from {__name__} import words_of_everything as words; print(words())"
    settings = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    child = [sys.executable, "-c", code]
    found = subprocess.run(child, env=settings, cwd=ROOT, capture_output=True, check=True)
    assert found.stdout.decode().strip() == words_of_everything()


# --- What can be wrong with a file or a folder -----------------------------------------------------------


class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)


def hostile(content: bytes, **header: Any) -> bytes:
    """Return a file with a right digest, and another header."""
    end = 44 + int.from_bytes(content[40:44], "big")
    return _packed({**json.loads(content[44:end]), **header}, content[end:])


def test_a_file_without_a_word_on_its_compilation_runs():
    content = jt.export(lambda x: 2 * x, jnp.arange(3))
    end = 44 + int.from_bytes(content[40:44], "big")
    header = json.loads(content[44:end])
    del header["quick_to_compile"]
    assert jt.load(_packed(header, content[end:]))(jnp.arange(3)).tolist() == [0, 2, 4]


def test_a_loaded_program_is_called_within_jit():
    program = jt.load(jt.export(lambda tree: {"y": tree["x"] ** 2, "n": 3}, {"x": jnp.ones(3)}))
    found = jax.jit(lambda x: 2.0 * program({"x": x})["y"])(jnp.arange(3.0))
    assert found.tolist() == [0.0, 2.0, 8.0]
    with pytest.raises(ValueError, match="No VJP"):
        jax.grad(lambda x: program({"x": x})["y"].sum())(jnp.ones(3))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:100],
        lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        lambda content: b"jaxtape\x02" + content[8:],
        lambda content: pickle.dumps(Bomb()),
        lambda content: _packed({}, content),
        lambda content: hostile(content, name="another"),
        lambda content: hostile(content, outputs=["leaf"]),
        lambda content: hostile(content, outputs=["module", ["os", "system"], []]),
        lambda content: hostile(content, outputs=["class", ["subprocess", "Popen"]]),
        lambda content: hostile(content, outputs=["value", ["named", ["os", "system"]]]),
        lambda content: content[:8] + content[8:40] + b"\xff" * 4 + content[44:],
        lambda content: _packed({"outputs": []}, b"\x00" * 100),
        lambda content: jt.export(lambda x: x, jnp.ones(7)),
    ],
)
def test_a_damaged_or_hostile_file_is_made_anew(folder, damage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = in_another_process(folder)(a_leg(), key=jax.random.key(1))
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert equal(in_another_process(folder)(a_leg(), key=jax.random.key(1)), first)
    assert len(traced) == 2 and len(file.read_bytes()) == len(whole)
    in_another_process(folder)(a_leg(), key=jax.random.key(1))
    assert len(traced) == 2 and not (tmp_path / "exploded").exists()


def test_a_file_of_too_many_bytes_is_not_read(folder):
    in_another_process(folder)(a_leg(), key=jax.random.key(1))
    (file,) = folder.iterdir()
    os.truncate(file, 2**40)  # a hole: it takes no room
    with pytest.raises(ValueError, match="has more than"):
        jt.load(file)
    in_another_process(folder)(a_leg(), key=jax.random.key(1))
    assert file.stat().st_size < 2**20


def test_a_folder_that_cannot_be_written(folder, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    for _ in range(2):
        found = in_another_process(tmp_path / "file")(a_leg(), key=jax.random.key(1))
        assert found.right[0] == Why.fine
    assert len(caplog.records) == 1 and "cannot be kept" in caplog.text


def test_a_full_disk(folder, caplog):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        found = in_another_process(folder)(a_leg(), key=jax.random.key(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found.right[0] == Why.fine and "File too large" in caplog.text
    assert not list(folder.iterdir())


def test_sources_that_changed_since_the_process_began(folder, monkeypatch):
    fingerprint._code_of.cache_clear()
    monkeypatch.setattr(fingerprint, "_STARTED", 0.0)
    in_another_process(folder)(a_leg(), key=jax.random.key(1))
    assert not folder.exists()


def test_the_size_is_bounded_and_what_is_used_stays(folder):
    run = lambda size: in_another_process(folder)(a_leg(size=size), key=jax.random.key(1))
    for size, seconds in ((1, 100), (2, 300), (3, 200)):
        run(size)
        newest = max(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, (seconds, seconds))
    (folder / "0.jaxtape.killed").write_bytes(b"0" * 100)  # left by a killed process, long ago
    os.utime(folder / "0.jaxtape.killed", (50, 50))
    run(1)  # the oldest, but used
    (folder / "notes.txt").write_text("not ours")
    two = 2 * max(file.stat().st_size for file in folder.iterdir())
    store.trim(folder, two)
    assert (folder / "notes.txt").exists() and len(list(folder.glob(store.PROGRAMS))) == 2
    traced.clear()
    run(1)
    run(2)
    assert not traced
    run(3)
    assert traced


# --- Files of their own ----------------------------------------------------------------------------------


def test_a_program_in_a_file(tmp_path):
    by = jnp.asarray(3.0)  # is part of the program
    (tmp_path / "program").write_bytes(jt.export(lambda leg: Leg(by * leg.rate, leg.name), a_leg()))
    program = jt.load(tmp_path / "program")
    found = program(Leg(jnp.ones(3), "EUR"))
    assert isinstance(found, Leg) and found.rate.tolist() == [3.0] * 3
    with pytest.raises(TypeError, match="the program takes"):
        program(a_leg(size=4))
    with pytest.raises(TypeError, match="the program takes"):
        program(a_leg("USD"))


def test_a_program_whose_class_is_not_there(tmp_path, monkeypatch):
    content = jt.export(lambda leg: leg, a_leg())
    monkeypatch.delattr(sys.modules[__name__], "Leg")
    with pytest.raises(ValueError, match=r"import .*test_program_store first"):
        jt.load(content)


def test_what_is_no_program(tmp_path):
    (tmp_path / "program").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match=r"not a program that jaxtape.export wrote"):
        jt.load(tmp_path / "program")
    with pytest.raises(TypeError, match=r"rebuilt from its description"):
        jt.export(returning_functions, jnp.ones(2))
    with pytest.raises(TypeError, match="not a class or function"):
        jt.export(lambda x: x, object())


def test_the_words_of_a_tree_are_plain():
    tree = a_leg(), Pair(1j, b"x"), {"k": (None, True, float("nan"))}, frozenset({1})
    assert json.loads(json.dumps(PytreeSpec(tree).json)) == PytreeSpec(tree).json


# --- The default store -----------------------------------------------------------------------------------


def test_the_default_store_gives_jax_a_folder_and_takes_it_back(tmp_path, monkeypatch):
    """A second job of a process finds the store again; a folder that a user gave JAX stays in use."""
    of_jax = lambda: jax.config.values["jax_compilation_cache_dir"]
    before = of_jax()
    monkeypatch.delenv("JAXTAPE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stored_jit.use_default_store() is None and of_jax() == before
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        first = None
        for _ in range(2):
            store = stored_jit.use_default_store()
            assert store is not None and store.folder == tmp_path / "jaxtape/programs"
            first = store if first is None else first
            assert store is first  # with the programs that this process has loaded
        assert of_jax() == str(tmp_path / "jaxtape")
        monkeypatch.setenv("JAXTAPE_CACHE", str(tmp_path / "named"))
        stored_jit.use_default_store()
        assert of_jax() == str(tmp_path / "named")
        jt.set_program_store(None)
        assert of_jax() is None
        stored_jit.use_default_store()
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
        assert stored_jit.store_in_use() is not None
        jt.set_program_store(None)
        assert of_jax() == str(tmp_path / "mine")
    finally:
        jt.set_program_store(None)
        jax.config.update("jax_compilation_cache_dir", before)
        compilation_cache.reset_cache()


# --- The command -----------------------------------------------------------------------------------------


def test_the_command_says_what_is_kept_and_clears_it(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXTAPE_CACHE", str(tmp_path))
    (tmp_path / "programs").mkdir()
    for name in ("programs/a.jaxtape", "jit_f-1-cache", "mine.txt"):
        (tmp_path / name).write_bytes(b"0" * 500_000)
    app = typer.Typer()
    app.command()(cache)
    told = CliRunner().invoke(app)
    assert (
        told.exit_code == 0
        and "1 programs, 0.5 MB" in told.output
        and "1 executables" in told.output
    )
    assert CliRunner().invoke(app, ["--clear"]).exit_code == 0
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["mine.txt"]


# --- Code of users ---------------------------------------------------------------------------------------


RATE = 0.02


def discounted(x):
    note("discounted")
    return x * (1.0 - rate_of(RATE))


def rate_of(number):
    return number


class Discounting(eqx.Module):
    def __call__(self, x):
        return discounted(x)


@pytest.mark.parametrize("function", [discounted, lambda x: discounted(x), Discounting()])
def test_a_global_that_a_function_reads_is_part_of_its_program(folder, monkeypatch, function):
    """In a module, a script or a notebook a constant changes while the source stays as it is."""
    run = lambda: float(in_another_process(folder, called)(Holder(function), jnp.ones(())))
    assert run() == run() == 0.98
    assert traced.count("discounted") == 1
    monkeypatch.setitem(globals(), "RATE", 0.1)
    assert run() == 0.9
    monkeypatch.setitem(globals(), "rate_of", lambda number: 2.0 * number)
    assert run() == 0.8


def test_a_global_that_cannot_be_described_is_not_kept(folder, monkeypatch):
    monkeypatch.setitem(globals(), "RATE", type("Quote", (float,), {})(0.02))
    assert in_another_process(folder, called)(Holder(discounted), jnp.ones(())) == 0.98
    assert not folder.exists()


def discounted_by_an_import(x):
    from tests.jaxtape.test_program_store import RATE

    return x * (1.0 - RATE)


def test_an_import_within_a_function_is_not_kept(folder):
    run = in_another_process(folder, called)
    assert run(Holder(discounted_by_an_import), jnp.ones(())) == 0.98
    assert not folder.exists()


def test_a_process_with_many_programs_unloads_some_of_them(monkeypatch, caplog):
    x = jnp.arange(9.0).reshape(3, 3)
    programs = [jt.load(jt.export(lambda x, n=n: (x + n) @ x.T, x)) for n in range(16)]
    held = lambda: [n for n, each in enumerate(programs) if each._compiled]
    monkeypatch.setattr(program, "LOADED", loaded.LoadedPrograms())
    monkeypatch.setattr(loaded, "map_limit", lambda: 20)
    monkeypatch.setattr(loaded, "map_count", lambda: len(held()))
    for each in programs[:15]:
        each(x)
    assert held() == [*range(15)]
    programs[15](x)
    assert len(held()) == 14 and held()[-1] == 15
    assert caplog.text.count("sysctl -w vm.max_map_count") == 1
    for n, each in enumerate(programs):
        np.testing.assert_array_equal(each(x), (x + n) @ x.T)


def test_programs_used_in_turn_are_not_all_unloaded_before_their_next_use(monkeypatch):
    class Loaded:
        is_loaded = True

        def unload(self):
            self.is_loaded = False

    programs = [Loaded() for _ in range(20)]
    monkeypatch.setattr(loaded, "map_limit", lambda: 21)
    monkeypatch.setattr(loaded, "map_count", lambda: sum(each.is_loaded for each in programs))
    known, found = loaded.LoadedPrograms(), []
    for each in programs * 20:
        known.used(each)
        found.append(each.is_loaded)
        each.is_loaded = True
        known.make_room()
    assert np.mean(found[20:]) > 0.5


UNLOADING = """
import jax.numpy as jnp
import jaxtape as jt
from jaxtape.programs import loaded

programs = [jt.load(jt.export(lambda x, n=n: (x + n) @ x.T, jnp.ones((3, 3)))) for n in range(16)]
before = loaded.map_count()
for program in programs:
    program(jnp.ones((3, 3)))
full = loaded.map_count()
loaded.map_limit = lambda: full
loaded.LOADED.make_room()
print(before, full, loaded.map_count(), [bool(program._compiled) for program in programs].count(True))
"""


@pytest.mark.repeat
@pytest.mark.skipif(loaded.map_limit() is None, reason="the system does not limit memory maps")
def test_an_unloaded_program_gives_its_memory_maps_back():
    done = subprocess.run([sys.executable, "-c", UNLOADING], capture_output=True, text=True)
    before, full, after, kept = map(int, done.stdout.split())
    assert kept < 16
    assert before < after <= full - 3 * (16 - kept)
