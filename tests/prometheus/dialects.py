"""The text of a host's GPUs, as five exporters write it, and as Prometheus stores it.

`stored` adds the labels that a server would add or rename while it scrapes one target for each
host: a lab with thousands of hosts scrapes few targets, with `honor_labels`.
"""

from collections.abc import Callable, Iterator

import scene

MIB = 1 << 20

# The labels of a series in order, and its samples.
Sample = tuple[str, dict[str, str], float]


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def joined(labels: dict[str, str], separator: str = ",") -> str:
    return separator.join(f'{name}="{escaped(value)}"' for name, value in labels.items())


class Dialect:
    """An exporter's way to write a GPU."""

    # The port in `instance`.
    port = 0
    job = ""

    def labels(self, gpu: scene.Gpu) -> dict[str, str]:
        """Returns the labels of each series of a GPU, as the exporter writes them."""
        raise NotImplementedError

    def values(self, gpu: scene.Gpu, now: scene.Reading) -> Iterator[tuple[str, str, float]]:
        """Yields the series of a GPU: the name, more labels as text, and the value."""
        raise NotImplementedError

    def host_values(self, host: scene.Host) -> Iterator[tuple[str, str, float]]:
        """Yields the series of a host that no GPU has: the name, the labels, and the value."""
        yield from ()

    def stored_labels(self, host: scene.Host, labels: dict[str, str]) -> dict[str, str]:
        """Returns labels as a server stores them that scrapes this host with `honor_labels` off."""
        target = {"instance": f"{host.name}:{self.port}", "job": self.job}
        kept = {
            f"exported_{name}" if name in target else name: value for name, value in labels.items()
        }
        return target | kept


class Dcgm(Dialect):
    """NVIDIA's dcgm-exporter, with its default counters and reasons of low clocks."""

    port, job = 9400, "dcgm"

    def labels(self, gpu: scene.Gpu) -> dict[str, str]:
        labels = {
            "gpu": str(gpu.index),
            "UUID": gpu.uuid,
            "pci_bus_id": gpu.bus_id,
            "device": f"nvidia{gpu.index}",
            "modelName": scene.GPU_NAME,
            "Hostname" if gpu.host.says_old_label else "hostname": gpu.host.name,
            "DCGM_FI_DRIVER_VERSION": scene.DRIVER,
        }
        if gpu.pod is not None:
            labels |= {"container": "main", "namespace": gpu.namespace, "pod": gpu.pod}
        return labels

    def stored_labels(self, host: scene.Host, labels: dict[str, str]) -> dict[str, str]:
        stored = super().stored_labels(host, labels)
        if host.index % 10 in (1, 2):
            # The target has the labels of the exporter's own pod.
            own = {"container": "exporter", "namespace": "gpu-operator", "pod": "dcgm-exporter-x"}
            for name, value in own.items():
                if name in stored:
                    stored[f"exported_{name}"] = stored[name]
                stored[name] = value
        return stored

    def values(self, gpu: scene.Gpu, now: scene.Reading) -> Iterator[tuple[str, str, float]]:
        is_blank = gpu.host.index == scene.BLANKS_HOST
        yield "DCGM_FI_DEV_SM_CLOCK", "", now.clock_mhz
        blank_temp = is_blank and gpu.index == 2
        yield "DCGM_FI_DEV_GPU_TEMP", "", scene.BLANK_INT32 if blank_temp else now.celsius
        blank_watts = is_blank and gpu.index == 3
        yield "DCGM_FI_DEV_POWER_USAGE", "", scene.BLANK_DOUBLE if blank_watts else now.watts
        yield (
            "DCGM_FI_DEV_GPU_UTIL",
            "",
            scene.BLANK_INT32 if is_blank and gpu.index < 2 else now.sm,
        )
        yield "DCGM_FI_DEV_MEM_COPY_UTIL", "", now.bandwidth
        if now.xid:
            message = f'err_code="{now.xid}",err_msg="{scene.XID_MESSAGES[now.xid]}"'
            yield "DCGM_FI_DEV_XID_ERRORS", message, now.xid
        elif gpu.host.index % 2:
            yield "DCGM_FI_DEV_XID_ERRORS", 'err_code="0",err_msg="No Error"', 0
        yield "DCGM_FI_DEV_FB_FREE", "", now.free_mib
        blank_memory = is_blank and gpu.index == 4
        yield "DCGM_FI_DEV_FB_USED", "", scene.BLANK_INT64 if blank_memory else now.used_mib
        yield "DCGM_FI_DEV_FB_RESERVED", "", scene.RESERVED_MIB
        yield "DCGM_FI_DEV_ROW_REMAP_FAILURE", "", int(now.is_row_remap_failed)
        yield "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "", int(now.xid == 48)
        yield "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "", 0x40 if now.is_hot else int(now.sm == 0)
        yield "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "", now.sm / 200


class NvidiaSmi(Dialect):
    """utkuozdemir/nvidia_gpu_exporter."""

    port, job = 9835, "nvidia_gpu_exporter"

    def labels(self, gpu: scene.Gpu) -> dict[str, str]:
        return {"uuid": gpu.uuid.removeprefix("GPU-")}

    def values(self, gpu: scene.Gpu, now: scene.Reading) -> Iterator[tuple[str, str, float]]:
        info = {
            "driver_version": scene.DRIVER,
            "index": str(gpu.index),
            "name": scene.GPU_NAME,
            "pci_bus_id": gpu.bus_id,
        }
        prefix = "nvidia_smi_"
        yield f"{prefix}gpu_info", joined(info), 1
        yield f"{prefix}index", "", gpu.index
        yield f"{prefix}memory_used_bytes", "", now.used_mib * MIB
        yield f"{prefix}memory_total_bytes", "", scene.TOTAL_MIB * MIB
        yield f"{prefix}memory_free_bytes", "", now.free_mib * MIB
        yield f"{prefix}memory_reserved_bytes", "", scene.RESERVED_MIB * MIB
        yield f"{prefix}utilization_gpu_ratio", "", now.sm / 100
        yield f"{prefix}utilization_memory_ratio", "", now.bandwidth / 100
        yield f"{prefix}temperature_gpu", "", now.celsius
        yield f"{prefix}power_draw_watts", "", now.watts
        yield f"{prefix}enforced_power_limit_watts", "", 700
        yield f"{prefix}clocks_current_sm_clock_hz", "", now.clock_mhz * 1e6
        yield f"{prefix}clocks_event_reasons_hw_thermal_slowdown", "", int(now.is_hot)
        yield f"{prefix}ecc_errors_uncorrected_volatile_total", "", int(now.xid == 48)
        yield f"{prefix}remapped_rows_failure", "", int(now.is_row_remap_failed)
        if now.xid:
            yield f"{prefix}xid_errors_total", f'xid="{now.xid}"', 1


class Nvitop(Dialect):
    """nvitop-exporter, whose name of a host is its address."""

    port, job = 5050, "nvitop"

    def labels(self, gpu: scene.Gpu) -> dict[str, str]:
        return {
            "devicename": scene.GPU_NAME,
            "hostname": gpu.host.address if gpu.host.index % 2 else gpu.host.name,
            "index": str(gpu.index),
            "uuid": gpu.uuid,
        }

    def values(self, gpu: scene.Gpu, now: scene.Reading) -> Iterator[tuple[str, str, float]]:
        yield "gpu_utilization_Percentage", "", now.sm
        yield "gpu_memory_utilization_Percentage", "", now.bandwidth
        yield "gpu_memory_percent_Percentage", "", 100 * now.used_mib / scene.TOTAL_MIB
        yield "gpu_memory_used_MiB", "", now.used_mib
        yield "gpu_memory_total_MiB", "", scene.TOTAL_MIB
        yield "gpu_memory_free_MiB", "", now.free_mib
        yield "gpu_temperature_C", "", now.celsius
        yield "gpu_power_usage_W", "", now.watts
        yield "gpu_power_limit_W", "", 700
        yield "gpu_clock_sm_MHz", "", now.clock_mhz
        # Its library writes what is not known as NaN.
        yield "gpu_fan_speed_Percentage", "", float("nan")
        if gpu.is_busy:
            process = {"pid": str(4000 + gpu.index), "username": f"user{gpu.host.index % 7}"}
            yield "process_gpu_memory_MiB", joined(process), now.used_mib
            yield "process_gpu_sm_utilization_Percentage", joined(process), now.sm


class AllSmi(Dialect):
    """lablup/all-smi, which writes an `instance` of its own."""

    port, job = 9090, "all-smi"

    def labels(self, gpu: scene.Gpu) -> dict[str, str]:
        is_old = gpu.host.says_old_label
        return {
            "gpu": scene.GPU_NAME,
            "instance": gpu.host.name,
            "uuid" if is_old else "gpu_uuid": gpu.uuid,
            "index" if is_old else "gpu_index": str(gpu.index),
        }

    def values(self, gpu: scene.Gpu, now: scene.Reading) -> Iterator[tuple[str, str, float]]:
        prefix = "all_smi_gpu_"
        yield f"{prefix}utilization", "", now.sm
        yield f"{prefix}memory_used_bytes", "", now.used_mib * MIB
        yield f"{prefix}memory_total_bytes", "", scene.TOTAL_MIB * MIB
        yield f"{prefix}temperature_celsius", "", now.celsius
        yield f"{prefix}power_consumption_watts", "", now.watts
        yield f"{prefix}power_limit_current_watts", "", 700
        yield f"{prefix}frequency_mhz", "", now.clock_mhz
        yield f"{prefix}info", 'type="GPU"', 1

    def host_values(self, host: scene.Host) -> Iterator[tuple[str, str, float]]:
        labels = {"instance": host.name, "hostname": host.name}
        yield "all_smi_up", joined(labels), 1


class Gputop(Dialect):
    """`gputop exporter`."""

    port, job = 19400, "gputop"

    def labels(self, gpu: scene.Gpu) -> dict[str, str]:
        return {"host": gpu.host.name, "gpu": str(gpu.index), "uuid": gpu.uuid}

    def values(self, gpu: scene.Gpu, now: scene.Reading) -> Iterator[tuple[str, str, float]]:
        prefix = "gputopmon_gpu_"
        info = {"name": scene.GPU_NAME, "driver": scene.DRIVER, "pci_bus_id": gpu.bus_id}
        yield f"{prefix}info", joined(info), 1
        trouble = ""
        if now.xid in (48, 79) or now.is_row_remap_failed:
            trouble = "hardware_error"
        elif now.is_hot:
            trouble = "slowdown"
        yield f"{prefix}free", "", int(not gpu.is_busy and trouble != "hardware_error")
        if trouble:
            yield f"{prefix}trouble", f'trouble="{trouble}"', 1
        yield f"{prefix}reading_age_seconds", 'readings="load"', 0.4
        yield f"{prefix}memory_total_bytes", "", scene.TOTAL_MIB * MIB
        yield f"{prefix}memory_used_bytes", "", now.used_mib * MIB
        yield f"{prefix}memory_reserved_bytes", "", scene.RESERVED_MIB * MIB
        yield f"{prefix}sm_use_ratio", "", now.sm / 100
        yield f"{prefix}memory_use_ratio", "", now.bandwidth / 100
        yield f"{prefix}temperature_celsius", "", now.celsius
        yield f"{prefix}power_watts", "", now.watts
        yield f"{prefix}power_limit_watts", "", 700
        yield f"{prefix}sm_clock_hertz", "", now.clock_mhz * 1e6
        yield f"{prefix}throttled", 'reason="hardware_thermal"', int(now.is_hot)
        yield f"{prefix}ecc_uncorrected_errors_total", "", int(now.xid == 48)
        yield f"{prefix}row_remap_failed", "", int(now.is_row_remap_failed)
        if now.xid:
            yield f"{prefix}last_xid", "", now.xid
            yield f"{prefix}last_xid_age_seconds", "", 60
        is_growing = gpu.host.index == scene.GROWING_HOST
        yield f"{prefix}leaking", "", int(is_growing)
        if is_growing:
            yield f"{prefix}memory_growth_bytes_per_second", "", 6 * MIB
            yield f"{prefix}full_in_seconds", 'estimate="likely"', now.free_mib / 6
        yield f"{prefix}held_idle_seconds", "", 5400 if gpu.is_busy and now.sm == 0 else 0
        yield f"{prefix}leftover_processes", "", 0
        if gpu.is_busy:
            process = f'user="user{gpu.host.index % 7}",program="python",script="train.py"'
            yield "gputopmon_processes", process, 1
            yield "gputopmon_process_memory_bytes", process, now.used_mib * MIB
            yield "gputopmon_process_sm_use_ratio", process, now.sm / 100

    def host_values(self, host: scene.Host) -> Iterator[tuple[str, str, float]]:
        labels = joined({"host": host.name})
        yield "gputopmon_host_up", labels, 1
        yield "gputopmon_host_reading_age_seconds", labels, 0.4


DIALECTS: dict[str, Callable[[], Dialect]] = {
    "dcgm": Dcgm,
    "nvidia_smi": NvidiaSmi,
    "nvitop": Nvitop,
    "all_smi": AllSmi,
    "gputop": Gputop,
}


class HostText:
    """Writes the series of one host. The labels are joined once."""

    def __init__(self, host: scene.Host, dialect: Dialect, is_stored: bool) -> None:
        self.host, self.dialect = host, dialect
        self.labels: list[tuple[scene.Gpu, list[str]]] = []
        for gpu in host.gpus:
            labels = dialect.labels(gpu)
            if is_stored:
                labels = dialect.stored_labels(host, labels)
            texts = [joined(labels)]
            if is_stored and host.index in scene.TWICE_HOSTS:
                # A second exporter of the same GPUs.
                second = {"instance": f"{host.name}:19999", "job": f"{dialect.job}-second"}
                texts.append(joined(labels | second))
            self.labels.append((gpu, texts))

    def write(self, tick: int, time_ms: int | None, into: dict[str, list[str]]) -> None:
        """Adds the lines of this host to those of each metric. `time_ms` is Unix time."""
        end = "" if time_ms is None else f" {time_ms}"
        for gpu, texts in self.labels:
            now = scene.reading(gpu, tick)
            for name, more, value in self.dialect.values(gpu, now):
                comma = "," if more else ""
                lines = into.setdefault(name, [])
                for labels in texts:
                    lines.append(f"{name}{{{labels}{comma}{more}}} {value}{end}\n")
        for name, labels, value in self.dialect.host_values(self.host):
            into.setdefault(name, []).append(f"{name}{{{labels}}} {value}{end}\n")


def exposition(hosts: list[HostText], tick: int, time_ms: int | None) -> bytes:
    """Returns the text of hosts, metric by metric."""
    metrics: dict[str, list[str]] = {}
    for host in hosts:
        host.write(tick, time_ms, metrics)
    parts = []
    for name, lines in metrics.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        parts.append(f"# TYPE {name} {kind}\n")
        parts.extend(lines)
    return "".join(parts).encode()
