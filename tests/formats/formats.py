"""Writes one leak in the formats that people have, and the same logs spoiled.

Each function returns the text of a log. The forms are those of the tools' own documentation; all
texts are made here. `check.py` runs `gputop analyze` on them.

The leak: a GPU of 81559 MiB holds 20000 MiB, and 10 MiB more in each sample; a sample every 5 s.
"""

import json
import math
from datetime import UTC, datetime, timedelta

CAPACITY = 81559
BASE = 20000
GAIN = 10
SECONDS = 5
SAMPLES = 480
BEGIN = datetime(2026, 3, 1, 8, 0, 0, tzinfo=UTC)


def samples():
    """Yields the number of each sample, its time, and the MiB in use."""
    for number in range(SAMPLES):
        yield number, BEGIN + timedelta(seconds=SECONDS * number), BASE + GAIN * number


def lines(head, row):
    """Returns a log of a head and of a row for each sample."""
    rows = [row(number, time, mib) for number, time, mib in samples()]
    return "\n".join([*head, *rows]) + "\n"


def slashes(time):
    return time.strftime("%Y/%m/%d %H:%M:%S.000")


def iso(time):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def dashes(time):
    return time.strftime("%Y-%m-%d %H:%M:%S")


def asctime(time):
    return time.strftime("%a %b ") + f"{time.day:2} " + time.strftime("%H:%M:%S %Y")


def gib(mib):
    return mib / 1024


# nvidia-smi


def query_units():
    head = ["timestamp, index, memory.used [MiB], memory.total [MiB]"]
    return lines(head, lambda n, t, m: f"{slashes(t)}, 0, {m} MiB, {CAPACITY} MiB")


def query_nounits():
    head = ["timestamp, index, memory.used [MiB], memory.total [MiB]"]
    return lines(head, lambda n, t, m: f"{slashes(t)}, 0, {m}, {CAPACITY}")


def query_noheader():
    return lines([], lambda n, t, m: f"{slashes(t)}, 0, {m} MiB, {CAPACITY} MiB")


def query_noheader_nounits():
    return lines([], lambda n, t, m: f"{slashes(t)}, 0, {m}, {CAPACITY}")


def smi_table(number, time, mib, has_date=True):
    bar = "+" + "-" * 89 + "+"
    rows = [
        bar,
        "| NVIDIA-SMI 570.86.10              Driver Version: 570.86.10      CUDA Version: 12.8     |",
        "|-----------------------------------------+------------------------+----------------------+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|=========================================+========================+======================|",
        "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:17:00.0 Off |                    0 |",
        f"| N/A   41C    P0            320W /  700W | {mib:>8}MiB / {CAPACITY:>7}MiB |     97%      Default |",
        bar,
        "| Processes:                                                                              |",
        f"|    0   N/A  N/A            4242      C   python                          {mib - 500:>8}MiB |",
        bar,
    ]
    return "\n".join(([asctime(time)] if has_date else []) + rows)


def smi_tables_with_dates():
    return lines([], smi_table)


def smi_tables_without_dates():
    return lines([], lambda n, t, m: smi_table(n, t, m, has_date=False))


def dmon_with_dates():
    head = [
        "#Date       Time        gpu     fb   bar1   ccpm",
        "#YYYYMMDD   HH:MM:SS    Idx     MB     MB     MB",
    ]
    return lines(head, lambda n, t, m: f" {t:%Y%m%d}   {t:%H:%M:%S}      0  {m}      5      0")


def dmon_without_dates():
    head = ["# gpu     fb   bar1   ccpm", "# Idx     MB     MB     MB"]
    return lines(head, lambda n, t, m: f"    0  {m}      5      0")


def dmon_csv():
    head = ["#Date, Time, gpu, pwr, fb, bar1, ccpm", "#YYYYMMDD, HH:MM:SS, Idx, W, MB, MB, MB"]
    return lines(head, lambda n, t, m: f" {t:%Y%m%d}, {t:%H:%M:%S}, 0, 320, {m}, 5, 0")


def pmon_with_dates():
    head = [
        "#Date       Time        gpu         pid   type     fb   ccpm    command",
        "#YYYYMMDD   HH:MM:SS    Idx           #    C/G     MB     MB    name",
    ]
    return lines(
        head,
        lambda n,
        t,
        m: f" {t:%Y%m%d}   {t:%H:%M:%S}      0       4242     C  {m}      0    python train",
    )


# Other monitors


def gpustat_text():
    def row(_, time, mib):
        return (
            f"node7                {asctime(time)}  570.86.10\n"
            f"[0] NVIDIA H100 80GB HBM3 | 41'C,  97 % | {mib} / {CAPACITY} MB | me({mib - 500}M)"
        )

    return lines([], row)


def gpustat_json():
    def row(_, time, mib):
        gpu = {
            "index": 0,
            "uuid": "GPU-0a1b2c3d",
            "name": "NVIDIA H100 80GB HBM3",
            "temperature.gpu": 41,
            "utilization.gpu": 97,
            "power.draw": 320,
            "memory.used": mib,
            "memory.total": CAPACITY,
            "processes": [],
        }
        document = {
            "hostname": "node7",
            "query_time": time.strftime("%Y-%m-%dT%H:%M:%S.000001"),
            "gpus": [gpu],
        }
        return json.dumps(document, indent=4)

    return lines([], row)


def nvitop():
    def row(_, time, mib):
        return "\n".join(
            [
                asctime(time),
                "╒" + "═" * 77 + "╕",
                "│ NVITOP 1.4.2        Driver Version: 570.86.10       CUDA Driver Version: 12.8 │",
                "├" + "─" * 31 + "┬" + "─" * 22 + "┬" + "─" * 22 + "┤",
                "│   0  H100 80GB HBM3      On   │ 00000000:17:00.0 Off │                    0 │",
                f"│ N/A   41C    P0   320W / 700W │ {mib:>6}MiB / 79.65GiB │     97%      Default │",
                "╘" + "═" * 77 + "╛",
            ]
        )

    return lines([], row)


def nvtop_json():
    def row(_, time, mib):
        gpu = {
            "device_name": "NVIDIA H100 80GB HBM3",
            "gpu_clock": "1980MHz",
            "mem_clock": "2619MHz",
            "temp": "41C",
            "power_draw": "320W",
            "gpu_util": "97%",
            "mem_util": f"{100 * mib // CAPACITY}%",
            "mem_total": str(CAPACITY << 20),
            "mem_used": str(mib << 20),
            "mem_free": str((CAPACITY - mib) << 20),
        }
        return json.dumps([gpu], indent=1)

    return lines([], row)


def rocm_smi_csv():
    def row(_, time, mib):
        return (
            "device,VRAM Total Memory (B),VRAM Total Used Memory (B)\n"
            f"card0,{CAPACITY << 20},{mib << 20}\n"
        )

    return lines([], row)


# Exports of trackers


def wandb_bytes():
    name = "run-1 - system/gpu.0.memoryAllocatedBytes"
    head = [f'"Relative Time (Process)","{name}","{name}__MIN","{name}__MAX"']
    return lines(head, lambda n, t, m: f'"{SECONDS * n}.25","{m << 20}","{m << 20}","{m << 20}"')


def wandb_percent():
    name = "run-1 - system/gpu.0.memoryAllocated"
    head = [f'"Relative Time (Process)","{name}","{name}__MIN","{name}__MAX"']

    def row(number, _, mib):
        share = 100 * mib / CAPACITY
        return f'"{SECONDS * number}.25","{share:.3f}","{share:.3f}","{share:.3f}"'

    return lines(head, row)


def tensorboard():
    return lines(
        ["Wall time,Step,Value"], lambda n, t, m: f"{t.timestamp():.3f},{n * 10},{gib(m):.5f}"
    )


def grafana():
    return lines(
        ['"Time","GPU 0","GPU 1"'], lambda n, t, m: f"{dashes(t)},{gib(m):.2f} GiB,4.88 GiB"
    )


def grafana_bare():
    return lines(['"Time","GPU 0"'], lambda n, t, m: f'"{dashes(t)}","{m}"')


def prometheus_json():
    values = [[time.timestamp(), str(mib)] for _, time, mib in samples()]
    metric = {"__name__": "DCGM_FI_DEV_FB_USED", "gpu": "0", "Hostname": "node7"}
    answer = {
        "status": "success",
        "data": {"resultType": "matrix", "result": [{"metric": metric, "values": values}]},
    }
    return json.dumps(answer) + "\n"


def dcgm_scrapes():
    def row(_, time, mib):
        return "\n".join(
            [
                f"# {iso(time)}",
                "# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).",
                "# TYPE DCGM_FI_DEV_FB_USED gauge",
                f'DCGM_FI_DEV_FB_USED{{gpu="0",UUID="GPU-0a1b",device="nvidia0",Hostname="node7"}} {mib}',
                f'DCGM_FI_DEV_FB_FREE{{gpu="0",UUID="GPU-0a1b",device="nvidia0",Hostname="node7"}} {CAPACITY - mib}',
            ]
        )

    return lines([], row)


def json_lines():
    return lines(
        [],
        lambda n, t, m: json.dumps(
            {"ts": iso(t), "step": n, "loss": 2.0, "gpu_mem_gb": round(m * 1.048576 / 1000, 4)}
        ),
    )


# Trainers


def huggingface():
    def row(number, _, mib):
        return str(
            {
                "loss": 2.1,
                "grad_norm": 1.2,
                "memory/device_reserved (GiB)": round(gib(mib), 3),
                "epoch": round(number / 100, 2),
            }
        )

    return lines(["***** Running training *****", "  Num examples = 10,000"], row)


def lightning():
    def row(number, _, mib):
        return f"Epoch 0:  {number // 5}%|███  | {number}/500 [{clock(number)}<10:00,  0.20it/s, v_num=0, train_loss=2.30, gpu_mem_gib={gib(mib):.3f}]"

    return "\r".join(lines([], row).split("\n"))


def deepspeed():
    def row(number, time, mib):
        stamp = time.strftime("[%Y-%m-%d %H:%M:%S,123]")
        reserved = gib(mib)
        return (
            f"{stamp} [INFO] [logging.py:96:log_dist] [Rank 0] step={number * 10}, skipped=0, lr=[0.0001]\n"
            f"{stamp} [INFO] [utils.py:782:see_memory_usage] MA {reserved - 2:.2f} GB         Max_MA {reserved:.2f} GB"
            f"         CA {reserved:.2f} GB         Max_CA {math.ceil(reserved)} GB \n"
            f"{stamp} [INFO] [utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 24.6 GB, percent = 5.0%"
        )

    return lines(["[WARNING] using --force"], row)


def megatron():
    def row(number, _, mib):
        step = (number + 1) * 10
        return (
            f" iteration {step:8}/   10000 | consumed samples: {step * 64:12} | elapsed time per iteration (ms): 500.1 | lm loss: 2.1E+00 |\n"
            f"[Rank 0] (after {step} iterations) memory (MB) | allocated: {mib - 2000}.5 | max allocated: {mib}.0 | reserved: {mib}.0 | max reserved: {mib}.0"
        )

    return lines(["using world size: 1"], row)


def mmengine():
    def row(number, time, mib):
        step = number % 100 * 10 + 10
        stamp = time.strftime("%Y/%m/%d %H:%M:%S")
        return f"{stamp} - mmengine - INFO - Epoch(train)  [{number // 100 + 1}][{step:4}/1000]  lr: 1.0e-04  eta: 1:00:00  time: 0.50  data_time: 0.01  memory: {mib}  loss: 0.5"

    return lines([], row)


def clock(number):
    seconds = SECONDS * number
    return f"{seconds // 60:02}:{seconds % 60:02}"


def tqdm():
    def row(number, _, mib):
        return f"train:  {number // 5}%|██▏       | {number}/500 [{clock(number)}<10:00,  0.20it/s, loss=0.5, mem={gib(mib):.3f}G]"

    return "\r".join(lines([], row).split("\n"))


# Tables of one's own


def step_gb():
    return lines(["step,GB"], lambda n, t, m: f"{n * 10},{m * 1.048576 / 1000:.4f}")


def epoch_gb():
    return lines(["epoch,GB"], lambda n, t, m: f"{n},{m * 1.048576 / 1000:.4f}")


def decimal_commas():
    head = ["Zeit;Speicher (GiB)".replace("Zeit", "time").replace("Speicher", "memory")]
    return lines(
        head,
        lambda n, t, m: f"{t:%d.%m.%Y %H:%M:%S};{gib(m):.4f}".replace(".", ",").replace(
            f"{t:%d,%m,%Y}", f"{t:%d.%m.%Y}"
        ),
    )


def thousands():
    return lines(["timestamp,memory used (MiB)"], lambda n, t, m: f'{dashes(t)},"{m:,}"')


def total_free_used():
    return lines(
        ["timestamp,total,free,used"], lambda n, t, m: f"{dashes(t)},{CAPACITY},{CAPACITY - m},{m}"
    )


def clock_before_memory():
    head = [
        "timestamp, clocks.mem [MHz], utilization.memory [%], memory.used [MiB], memory.total [MiB]"
    ]
    return lines(head, lambda n, t, m: f"{slashes(t)}, 2619 MHz, 40 %, {m} MiB, {CAPACITY} MiB")


def quoted_lines():
    def row(_, time, mib):
        return f'{dashes(time)},"python\ntrain.py, epoch 1",{mib}'

    return lines(["timestamp,command,memory (MiB)"], row)


TIME = "time"
STEP = "step"

# Each format: the function, its axis, the seconds or steps between two samples, and a number that
# its sentence may ask for.
FORMATS = [
    (query_units, TIME),
    (query_nounits, TIME),
    (query_noheader, TIME),
    (query_noheader_nounits, TIME),
    (smi_tables_with_dates, TIME),
    (smi_tables_without_dates, TIME),
    (dmon_with_dates, TIME),
    (dmon_without_dates, TIME),
    (dmon_csv, TIME),
    (pmon_with_dates, TIME),
    (gpustat_text, TIME),
    (gpustat_json, TIME),
    (nvitop, TIME),
    (nvtop_json, TIME),
    (rocm_smi_csv, TIME),
    (wandb_bytes, TIME),
    (wandb_percent, TIME),
    (tensorboard, TIME),
    (grafana, TIME),
    (grafana_bare, TIME),
    (prometheus_json, TIME),
    (dcgm_scrapes, TIME),
    (json_lines, TIME),
    (huggingface, 0.01),
    (lightning, 1),
    (deepspeed, TIME),
    (megatron, 10),
    (mmengine, TIME),
    (tqdm, 1),
    (step_gb, 10),
    (epoch_gb, 1),
    (decimal_commas, TIME),
    (thousands, TIME),
    (total_free_used, TIME),
    (clock_before_memory, TIME),
    (quoted_lines, TIME),
]
