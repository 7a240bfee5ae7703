"""Programs compiled for accelerators that are not here, and XLA's text of a program read."""

import importlib.util
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
from jaxtape.programs.device_limits import DOUBLES, FLOATS, INTEGERS
from jaxtape.programs.recorded import recorded_programs
from jaxtape.programs.registers import registers_in
from jaxtape.programs.scheduled_program import ScheduledProgram
from jaxtape.programs.targets import target_of

from .. import documented

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra `tpu`: make accelerators"
)


def chain(x):
    step = jax.checkpoint(lambda c, z: (c * jnp.exp(0.01 * z * jnp.sin(c)), None))
    return jnp.sum(jax.lax.scan(step, x, jnp.ones(64, x.dtype))[0])


def test_loops_and_kernels_of_a_program():
    x = jnp.ones(1000, jnp.float32)
    found = ScheduledProgram(jax.jit(jax.grad(chain)).lower(x).compile().as_text())
    assert [loop.turns for loop in found.loops] == [64, 64]
    inside = sum(64 * loop.kernels for loop in found.loops)
    assert found.kernels is not None and inside < found.kernels < inside + 64

    def until(x):
        return jax.lax.while_loop(lambda x: jnp.sum(x) < 10.0, lambda x: 2.0 * x, x)

    found = ScheduledProgram(jax.jit(until).lower(x).compile().as_text())
    assert [loop.turns for loop in found.loops] == [None]
    assert found.kernels is None


# as a TPU's compiler writes a loop, whose length it does not say
TEXT = """HloModule jit_f, is_scheduled=true

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %two = s32[]{:T(128)} constant(2)
  %p = (s32[]{:T(128)}, f32[8]{0:T(128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %x = f32[8]{0:T(128)} get-tuple-element(%p), index=1
  %y = f32[8]{0:T(128)} fusion(%x), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"100"}
  %start = (f32[8]{0:T(128)}, f32[8]{0:T(128)}) all-reduce-start(%y), to_apply=%add
  %sum = f32[8]{0:T(128)} all-reduce-done(%start)
  %next = s32[]{:T(128)} add(%i, %two)
  ROOT %t = (s32[]{:T(128)}, f32[8]{0:T(128)}) tuple(%next, %sum)
}

%condition (p.1: (s32[], f32[8])) -> pred[] {
  %end = s32[]{:T(128)} constant(12)
  %p.1 = (s32[]{:T(128)}, f32[8]{0:T(128)}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%p.1), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i.1, %end), direction=LT
}

ENTRY %main (x.1: f32[8]) -> f32[8] {
  %one = s32[]{:T(128)} constant(1)
  %x.1 = f32[8]{0:T(128)} parameter(0)
  %copy = s32[]{:T(128)} copy(%one)
  %given = (s32[]{:T(128)}, f32[8]{0:T(128)}) tuple(%copy, %x.1)
  %while = (s32[]{:T(128)}, f32[8]{0:T(128)}) while(%given), condition=%condition, body=%body
  ROOT %out = f32[8]{0:T(128)} get-tuple-element(%while), index=1
}
"""


def test_length_of_a_loop_between_constants():
    found = ScheduledProgram(TEXT)
    ((turns, kernels, copies),) = found.loops
    assert (turns, kernels, copies) == (6, 3, 0)  # 1, 3, 5, 7, 9, 11
    assert (found.kernels, found.copies, found.cycles) == (6 * 3 + 1, 1, 6 * 100)
    assert found.collectives == {"all-reduce": (1, 32)}


def test_bytes_of_kernels_of_pallas():
    """Arguments and results at each of six launches; one argument is given twice, as two blocks."""
    kernel = (
        "%y = (f32[8]{0:T(128)}, /*index=1*/s8[2,3]{0}) custom-call(%x, %i, /*index=2*/%x), "
        'custom_call_target="tpu_custom_call"'
    )
    before = next(line for line in TEXT.splitlines() if "fusion" in line)
    found = ScheduledProgram(TEXT.replace(before.strip(), kernel))
    assert found.pallas_bytes == 6 * (8 * 4 + 2 * 3 + 8 * 4 + 4 + 8 * 4)
    assert ScheduledProgram(TEXT).pallas_bytes == 0


@pytest.mark.parametrize(
    "before, after",
    [
        ("constant(12)", "parameter(1)"),
        ("copy(%one)", "negate(%one)"),
        ("add(%i, %two)", "multiply(%i, %two)"),
        ("add(%i, %two)", "add(%two, %two)"),
        ("constant(2)", "constant(0)"),
        ("direction=LT", "direction=NE"),
    ],
)
def test_length_of_another_loop_is_unknown(before, after):
    assert before in TEXT
    found = ScheduledProgram(TEXT.replace(before, after))
    assert found.loops[0].turns is None
    assert (found.kernels, found.cycles) == (None, None)


SAID = """ptxas info    : Compiling entry function 'first_sweep' for 'sm_90a'
ptxas info    : Function properties for first_sweep
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers
ptxas info    : Compiling entry function 'reverse_sweep' for 'sm_90a'
ptxas info    : Function properties for reverse_sweep
    8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size
"""


def test_registers_as_the_assembler_says_them():
    expected = {"first_sweep": (28, 0), "reverse_sweep": (255, 20)}
    assert registers_in(SAID) == expected


@pytest.mark.parametrize(
    ("used", "warps"), [(16, 64), (32, 64), (33, 48), (40, 48), (72, 28), (128, 16), (255, 8)]
)
def test_occupancy(used, warps):
    """As NVIDIA's occupancy calculator has it, which gives out warps by four."""
    assert jt.Registers(used, 0).occupancy == warps / 64


def test_limits_are_those_of_data_sheets():
    """TFLOPS in single and double, TB/s; what is unknown is no limit."""
    sheets = {
        "a100": (19.5, 9.7, 2.04),
        "h100": (67, 34, 3.35),
        "h200": (67, 34, 4.8),
        "b200": (75, 37, 7.7),
    }
    for name, (single, double, bandwidth) in sheets.items():
        found = {limit.name: limit.per_second for limit in target_of(f"gpu:{name}").limits}
        expected = {FLOATS: single, DOUBLES: double, "memory": bandwidth}
        for limit, tera in expected.items():
            assert found[limit] == pytest.approx(1e12 * tera, rel=0.02)
    assert [limit.name for limit in target_of("tpu:v6e:2x2").limits] == ["memory"]
    vector = target_of("tpu:v5e:2x2").limits[1]
    assert vector.seconds({FLOATS: 4096, INTEGERS: 4096, "bytes": 1}) == pytest.approx(2 / 1.5e9)


def test_names_of_targets():
    assert target_of("tpu:v5e:16x16").topology["topology_name"] == "v5e:16x16"
    assert target_of("gpu:h100:8").topology["topology"] == "1x1x8"
    for name in (
        "tpu",
        "tpu:v9:2x2",
        "tpu:v5e",
        "tpu:v5e:2x2:3",
        "gpu:h100:x",
        "gpu:h1",
        "cpu",
        "",
    ):
        with pytest.raises(ValueError, match="give tpu:VERSION:TOPOLOGY, such as tpu:v5e:2x2"):
            target_of(name)


@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is not None, reason="the extra `tpu` is installed"
)
def test_without_the_compiler():
    with pytest.raises(ImportError, match=r"pip install 'jaxtape\[tpu\]'"):
        jt.compile_for(jnp.sum, jnp.ones(8), target="tpu:v5e:2x2")


@jt.stored_jit
def twice(x, times):
    return times * x


def test_programs_of_a_block():
    with recorded_programs() as programs:
        twice(jnp.ones(3), 2.0)
        twice(jnp.zeros(3), 2.0)
        twice(jnp.ones(4), 2.0)
        jax.jit(twice)(jnp.ones(5), 2.0)  # a part of another program
    twice(jnp.ones(6), 2.0)
    assert [(each.args[0].shape, each.calls) for each in programs.values()] == [
        ((3,), 2),
        ((4,), 1),
    ]


def test_reports_as_plain_data():
    report = jt.CompiledReport(
        "gpu:h100",
        loops=(jt.Loop(3, 2, 1),),
        collectives={"all-reduce": jt.Collective(1, 8)},
        registers={"first_sweep": jt.Registers(28, 0)},
    )
    assert "first_sweep: 28 registers a thread, 0 bytes spilled, occupancy at most 100 %" in str(
        report
    )
    assert jt.CompiledReport.from_json(report.as_json()) == report
    assert not jt.CompiledReport("gpu:h100", "refused").compiles
    assert not jt.CompiledReport("gpu:h100", temporary_bytes=9, device_bytes=8).fits


@needs_libtpu
def test_compiles_for_a_tpu():
    with jax.enable_x64(False):  # a TPU's loops count in 32 bits
        report = jt.compile_for(jax.grad(chain), jnp.ones(65536), target="tpu:v5e:2x2")
    assert report.compiles and report.fits
    assert [loop.turns for loop in report.loops] == [64, 64]
    assert report.argument_bytes == report.output_bytes == 4 * 65536
    assert 1e-5 < report.seconds < 1e-1


@needs_libtpu
def test_a_plan_for_a_tpu_holds_there():
    with jax.enable_x64(False):
        step = lambda weights, x: x + jnp.tanh(x @ weights)
        tape = jt.Tape().append(step, 0.1 * jnp.ones((48, 128, 128)))
        x = jnp.ones((64, 128))
        plan = jt.plan(tape, x, budget="1MiB", target="tpu:v5e:2x2")

        def gradient(tape, x):
            loss = lambda tape, x: jnp.sum(tape(x) ** 2)
            return jax.grad(loss, (0, 1), allow_int=True)(tape, x)

        scheduled = tape.with_schedule(plan.schedule)
        report = jt.compile_for(gradient, scheduled, x, target="tpu:v5e:2x2")
    assert report.temporary_bytes <= plan.peak_bytes <= 2**20


@needs_libtpu
@pytest.mark.parametrize(("page", "end"), [("accelerators", "## Will"), ("kernels", "## Which")])
def test_a_page_runs(page, end, tmp_path, monkeypatch):
    """Its program up to a heading; GPUs are TPUs, whose compiler is here."""
    monkeypatch.chdir(tmp_path)
    before, _, _ = (documented.ROOT / "docs" / f"{page}.md").read_text().partition(end)
    program = "\n".join(re.findall(r"```python\n(.*?)```", before, re.S))
    try:
        with jax.enable_x64(False):
            exec(re.sub("gpu:h[12]00", "tpu:v5e:2x2", program), found := {})
    finally:
        jt.set_kernels(False)
    assert page == "kernels" or found["report"].fits
    assert page == "accelerators" or "at least" in (tmp_path / "roofline.svg").read_text()


@needs_libtpu
def test_takes_the_branch_of_the_target():
    def f(x):
        other = lambda x: jax.pure_callback(np.sin, x, x)  # which does not compile for a target
        return jax.lax.platform_dependent(x, tpu=jnp.sin, default=other)

    assert jt.compile_for(f, jnp.ones(8, jnp.float32), target="tpu:v5e:2x2").compiles
    refused = jt.compile_for(
        lambda x: jax.pure_callback(np.sin, x, x), jnp.ones(8), target="tpu:v5e:2x2"
    )
    assert not refused.compiles and refused.reason
