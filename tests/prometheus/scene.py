"""The simulated cluster: its hosts, its GPUs, and their readings, which move with time.

A reading depends on the host, the GPU and the moment alone, so two exporters agree on it.
"""

import dataclasses
import time

GPUS_PER_HOST = 8
GPU_NAME = "NVIDIA H100 80GB HBM3"
DRIVER = "570.124.06"
TOTAL_MIB = 81_559
RESERVED_MIB = 551
# Values change this often.
PERIOD_S = 5.0

# DCGM's values for "not supported" and the like, which an exporter should not have passed on.
BLANK_DOUBLE = 140_737_488_355_328
BLANK_INT32 = 2_147_483_632
BLANK_INT64 = 9_223_372_036_854_775_794

# Hosts with a role of their own, by index. All others follow from the last digit.
GROWING_HOST = 9
BLANKS_HOST = 11
TWICE_HOSTS = (12, 13)
ROW_REMAP_HOST = 16
HOT_HOST = 17
XIDS = {(3, 1): 79, (5, 0): 48, (14, 2): 31}
XID_MESSAGES = {
    79: "GPU has fallen off the bus",
    48: "Double Bit ECC Error",
    31: "GPU memory page fault",
}
# The names of the last three hosts of a cluster with `has_hostile`.
HOSTILE_NAMES = (
    "-oProxyCommand=touch x",
    "\x1b[2J\x1b]0;owned\x07\u202egpu\nnode",
    "h" * 5000,
)


@dataclasses.dataclass
class Host:
    """A host with GPUs."""

    index: int
    name: str
    gpus: list["Gpu"] = dataclasses.field(default_factory=list)

    @property
    def address(self) -> str:
        """The address in the private network, which nvitop-exporter takes for the name."""
        return f"10.{self.index >> 16}.{self.index >> 8 & 255}.{self.index & 255}"

    @property
    def says_old_label(self) -> bool:
        """Whether dcgm-exporter is so old that the label is `Hostname`."""
        return self.index % 10 == 0


@dataclasses.dataclass
class Gpu:
    """A GPU, and the pod that holds it."""

    host: Host
    index: int
    uuid: str
    is_busy: bool
    # None: no pod holds the GPU.
    pod: str | None
    namespace: str

    @property
    def bus_id(self) -> str:
        return f"00000000:{0x1B + 0x10 * self.index:02X}:00.0"


@dataclasses.dataclass
class Reading:
    """The values of a GPU at a moment."""

    used_mib: int
    # Percent of time in which a kernel ran, and in which memory was read or written.
    sm: int
    bandwidth: int
    celsius: int
    watts: float
    clock_mhz: int
    # 0: none.
    xid: int
    is_row_remap_failed: bool
    is_hot: bool

    @property
    def free_mib(self) -> int:
        return max(0, TOTAL_MIB - RESERVED_MIB - self.used_mib)


def cluster(gpus: int, has_hostile: bool) -> list[Host]:
    """Returns hosts with that many GPUs, eight each."""
    count = max(1, gpus // GPUS_PER_HOST)
    hosts = [host_at(index) for index in range(count)]
    if has_hostile:
        for host, name in zip(hosts[-len(HOSTILE_NAMES) :], HOSTILE_NAMES, strict=False):
            host.name = name
    return hosts


def host_at(index: int) -> Host:
    host = Host(index, f"gpu-node-{index:04}.cluster.example.org")
    for place in range(GPUS_PER_HOST):
        uuid = f"GPU-{index:08x}-1f2e-43d0-9d4b-{place:012x}"
        # Hosts whose index ends in 6 are free, half of those that end in 7 is.
        is_busy = index % 10 != 6 and (index % 10 != 7 or place < 4)
        pod = f"train-{index // 10}-{index % 10}" if is_busy and index % 10 != 8 else None
        host.gpus.append(Gpu(host, place, uuid, is_busy, pod, f"team-{index % 9}"))
    return host


def now_tick() -> int:
    """The present moment, as `reading` takes it."""
    return int(time.time() / PERIOD_S)


def reading(gpu: Gpu, tick: int) -> Reading:
    """Returns the values of a GPU at a tick."""
    host = gpu.host.index
    noise = (host * 7919 + gpu.index * 104_729 + tick * 15_485_863) % 10_007
    if not gpu.is_busy:
        used, sm = 4, 0
    elif host % 10 == 8:
        # A notebook holds memory and computes nothing.
        used, sm = 21_000 + host % 500, 0
    else:
        used, sm = 60_000 + host * 13 % 9_000 + noise % 300, 60 + noise % 41
    if host == GROWING_HOST:
        # From 20 GiB on, 6 MiB a second: full after about two hours and a half.
        used = 20_000 + int(tick * PERIOD_S * 6) % 55_000
    return Reading(
        used_mib=used,
        sm=sm,
        bandwidth=sm * 2 // 3,
        celsius=89 if host == HOT_HOST else 32 + sm // 3 + noise % 3,
        watts=90 + sm * 5.5 + noise % 100 / 10,
        clock_mhz=345 if sm == 0 else 1980 - (900 if host == HOT_HOST else 0),
        xid=XIDS.get((host, gpu.index), 0),
        is_row_remap_failed=host == ROW_REMAP_HOST and gpu.index == 7,
        is_hot=host == HOT_HOST,
    )
