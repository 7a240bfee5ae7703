"""Named accelerators that programs can be compiled for without being attached."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from .device_limits import BYTES, DOUBLES, FLOATS, FUNCTIONS, INTEGERS, Limit

_GIB = 2**30
_TPUS = {
    "v3": (16, 0.94e9, 0.45e12, 0),
    "v4": (32, 1.05e9, 1.2e12, 4),
    "v5e": (16, 1.5e9, 0.81e12, 4),
    "v5p": (95, 1.75e9, 2.8e12, 8),
    "v6e": (32, 1.75e9, 1.6e12, 0),
}
"""A device's memory in GiB, its clock rate in Hz, its memory bandwidth in bytes a second, and the results per
cycle of one lane of the vector units of all its cores; 0 if unpublished.

Source: the pages of Cloud TPU's versions, and for the last two J. Austin et al., "How to Scale Your Model"
(2025), chapter 2. The clock rate is the one at which the matrix units reach their peak. A device of version 3
is half a chip.
"""
_LANES = 8 * 128  # of a TPU's vector units


class _Gpu(NamedTuple):
    """The figures of an NVIDIA GPU that XLA needs to compile for it.

    Source: `xla/backends/gpu/target_config/specs/` of OpenXLA (h100_sxm, h200, a100_sxm_80, b200). The versions
    of CUDA and cuDNN in the description are those of XLA's own tests.
    """

    name: str
    compute_capability: int
    cores: int
    units_per_core: int
    shared_bytes_per_core: int
    shared_bytes_per_block: int
    bandwidth: int
    cache_bytes: int
    clock_ghz: float
    memory: int

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The peaks of its data sheet, derived from the units of a multiprocessor.

        Source: NVIDIA's white papers of the A100 and the H100: half as many units for doubles as for floats, 64
        for integers and 16 for special functions. The number of the B200's integer units is unknown, and taken
        to be that of its float units.
        """
        hertz = self.cores * self.clock_ghz * 1e9
        integers = self.units_per_core if self.compute_capability >= 10 else 64
        return (
            Limit("memory", (BYTES,), float(self.bandwidth)),
            Limit(FLOATS, (FLOATS,), 2.0 * hertz * self.units_per_core),
            Limit(DOUBLES, (DOUBLES,), hertz * self.units_per_core),
            Limit(INTEGERS, (INTEGERS,), hertz * integers),
            Limit(FUNCTIONS, (FUNCTIONS,), hertz * 16),
        )

    @property
    def description(self) -> str:
        """The figures as a text of XLA's GpuTargetConfigProto."""
        return f"""
            gpu_device_info {{
              threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
              shared_memory_per_block: 49152 shared_memory_per_core: {self.shared_bytes_per_core}
              shared_memory_per_block_optin: {self.shared_bytes_per_block}
              core_count: {self.cores} fpus_per_core: {self.units_per_core}
              block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
              memory_bandwidth: {self.bandwidth} l2_cache_size: {self.cache_bytes}
              clock_rate_ghz: {self.clock_ghz} device_memory_size: {self.memory}
              cuda_compute_capability {{ major: {self.compute_capability} }}
              registers_per_core_limit: 65536 registers_per_block_limit: 65536
            }}
            platform_name: "CUDA" device_description_str: "{self.name}"
            dnn_version_info {{ major: 9 minor: 8 }} runtime_version {{ major: 12 minor: 9 patch: 0 }}"""


_HOPPER = 9, 132, 128, 233472, 232448
_GPUS = {
    "a100": _Gpu(
        "NVIDIA A100-SXM4-80GB", 8, 108, 64, 167936, 166912, 2039040000000, 41943040, 1.41, 85100068864
    ),
    "h100": _Gpu("NVIDIA H100 80GB HBM3", *_HOPPER, 3352320000000, 52428800, 1.98, 84942979072),
    "h200": _Gpu("NVIDIA H200 141GB HBM3e", *_HOPPER, 4800000000000, 52428800, 1.98, 151397597184),
    "b200": _Gpu(
        "NVIDIA B200", 10, 148, 128, 233472, 232448, 7672320000000, 132644864, 1.965, 191514411008
    ),
}  # fmt: skip


class Target(NamedTuple):
    """Accelerators to compile for.

    Attributes:
        name: The name, such as "tpu:v5e:2x2".
        platform: The platform of JAX: "tpu" or "cuda".
        topology: Arguments of `jax.experimental.topologies.get_topology_desc`.
        device_bytes: The memory of one device.
        clock: The clock rate in Hz, which converts estimated cycles to time; 0 if the compiler estimates none.
        extra: The extra of this package that installs the compiler.
        modules: The compiler needs one of these modules.
        limits: The peak rates of one device.
        kind: The name of a device and its number of cores, if lowering depends on them.
        cache_bytes: The bytes of the last cache before a device's memory; 0 for a TPU.
    """

    name: str
    platform: str
    topology: dict[str, Any]
    device_bytes: int
    clock: float
    extra: str
    modules: tuple[str, ...]
    limits: tuple[Limit, ...]
    kind: tuple[str, int] | None = None
    cache_bytes: int = 0

    def described(self) -> AbstractContextManager:
        """Lower programs for such a device within the block.

        Since JAX 0.11, Pallas' Triton backend asks for the name of a GPU: an attached one, or one that a mesh
        describes.
        """
        if self.kind is None:
            return nullcontext()
        device = AbstractDevice(*self.kind, platform=self.platform)
        return use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


def target_of(name: str) -> Target:
    """Return the accelerators of a name: "tpu:v5e:2x2", "gpu:h100" or, for eight of them, "gpu:h100:8".

    Raises:
        ValueError: If the name is unknown.
    """
    kind, version, size = [*name.split(":"), "", ""][:3]
    if kind == "tpu" and version in _TPUS and size and name.count(":") == 2:
        where = {"platform": "tpu", "topology_name": f"{version}:{size}"}
        memory, clock, bandwidth, results = _TPUS[version]
        limits = [Limit("memory", (BYTES,), bandwidth)]
        if results:
            vector = "vector operations", (FLOATS, INTEGERS), clock * results * _LANES
            limits.append(Limit(*vector))
        size, found = memory * _GIB, tuple(limits)
        return Target(name, "tpu", where, size, clock, "tpu", ("libtpu",), found)
    if kind == "gpu" and version in _GPUS and (size or "1").isdigit() and name.count(":") <= 2:
        gpu = _GPUS[version]
        where = {
            "platform": "cuda",
            "topology_name": version,
            "target_config": gpu.description,
            "topology": f"1x1x{size or 1}",
        }
        plugins = "jax_cuda13_plugin", "jax_cuda12_plugin"
        kind, cache = (gpu.name, gpu.cores), gpu.cache_bytes
        return Target(
            name, "cuda", where, gpu.memory, 0.0, "cuda", plugins, gpu.limits, kind, cache
        )
    raise ValueError(
        f"target is {name!r}, which names no accelerator: give tpu:VERSION:TOPOLOGY, such as tpu:v5e:2x2 or "
        f"tpu:v5e:16x16 (VERSION: {', '.join(_TPUS)}), or gpu:NAME or gpu:NAME:COUNT, such as gpu:h100 (NAME: "
        f"{', '.join(_GPUS)})"
    )
