"""Checks that compare gputop with the nvidia-smi of the same host, in the same second."""

import json
import re
import subprocess

from lab import MIB, Failed

# Fields whose values move while they are read, and by how much, in the unit that nvidia-smi prints.
# The values of nvidia-smi before and after gputop bound what is right; this is added on both sides.
MOVING = [
    # (pattern, tolerance, example)
    (r"^utilization\.", 15, "utilization.gpu"),
    (r"power\.draw", 30, "power.draw.instant"),
    (r"^clocks\.current\.", 300, "clocks.current.sm"),
    (r"^temperature\.", 3, "temperature.gpu"),
    (r"^memory\.(used|free)$", 64, "memory.used"),
    (r"^clocks_event_reasons_counters\.", 10_000_000, "clocks_event_reasons_counters.sw_power_cap"),
]
# Their text may be another one in the same second.
CHANGING = re.compile(r"^timestamp$|^pstate$|^clocks_(event|throttle)_reasons\.")
NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)(?: (.+))?$")
REMAPPED = (
    "gpu_bus_id,gpu_uuid,remapped_rows.correctable,remapped_rows.uncorrectable,"
    "remapped_rows.pending,remapped_rows.failure"
)


def smi(*arguments, seconds=30):
    done = subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=seconds
    )
    if done.returncode:
        raise Failed(f"nvidia-smi {arguments} ended with {done.returncode}: {done.stdout[-300:]}")
    return done.stdout


def fields_of(help_text):
    """The names of fields in the help of nvidia-smi: each is quoted at the start of a line."""
    lines = [line for line in help_text.splitlines() if line.startswith('"')]
    names = [re.findall(r'"([a-z][A-Za-z0-9_.]*)"', line) for line in lines]
    return list(dict.fromkeys(name for group in names for name in group))


def cells(csv):
    """The cells of each line of a CSV that nvidia-smi prints."""
    return [line.split(", ") for line in csv.rstrip("\n").split("\n")]


def tolerance_of(field):
    for pattern, tolerance, _ in MOVING:
        if re.search(pattern, field):
            return tolerance
    return None


def compare_cell(it, field, before, ours, after):
    if ours == after:
        return it.same(field, ours, after)
    if CHANGING.search(field):
        # Another text in the next second, of the same form.
        form = lambda text: re.sub(r"[0-9A-Fa-f]|Not ", "", text)
        return it.same(field, form(ours), form(before))
    tolerance = tolerance_of(field)
    found = [NUMBER.match(text) for text in (before, ours, after)]
    if tolerance is None or not all(found) or len({one[2] for one in found}) > 1:
        return it.same(field, ours, before)
    low, value, high = (float(one[1]) for one in found)
    low, high = min(low, high), max(low, high)
    return it.near(field, value, (low + high) / 2, (high - low) / 2 + tolerance)


def query(lab, it, option, names):
    """Compares all fields of one option, for the GPU under test."""
    select = [] if "apps" in option else [f"--id={lab.uuid}"]
    arguments = [f"{option}={','.join(names)}", "--format=csv", *select]
    before = cells(smi(*arguments))
    ours = cells(lab.gputop(*arguments).stdout)
    after = cells(smi(*arguments))
    if select:
        it.same("lines", len(ours), len(after))
    it.same("cells", {len(line) for line in ours}, {len(line) for line in before})
    for name, theirs, own in zip(names, before[0], ours[0], strict=False):
        it.same(f"heading of {name}", own, theirs)
    return before[1:], ours[1:], after[1:]


def query_gpu(lab, it):
    """Every field of --query-gpu."""
    lab.needs_smi()
    names = fields_of(smi("--help-query-gpu"))
    own = set(fields_of(lab.gputop("--help-query-gpu").stdout)) or set(
        re.findall(r"[a-z][A-Za-z0-9_.]+", lab.gputop("--help-query-gpu").stdout)
    )
    lacking = [name for name in names if name not in own]
    it.holds("every field of nvidia-smi is known", not lacking, ", ".join(lacking))
    names = [name for name in names if name in own]
    for lines in zip(*query(lab, it, "--query-gpu", names), strict=False):
        for name, before, ours, after in zip(names, *lines, strict=False):
            compare_cell(it, name, before, ours, after)
    it.note(f"{len(names)} fields")


def query_apps(lab, it):
    """Every field of --query-compute-apps, for processes that rest."""
    lab.needs_smi()
    child = lab.holder(700)
    names = fields_of(smi("--help-query-compute-apps"))
    lab.wait_for_memory(child.pid)
    at = names.index("pid")
    before, ours, _ = query(lab, it, "--query-compute-apps", names)
    theirs = {line[at]: line for line in before}
    own = {line[at]: line for line in ours}
    it.holds("the process is in both", str(child.pid) in theirs and str(child.pid) in own)
    for name, one, other in zip(names, own[str(child.pid)], theirs[str(child.pid)], strict=False):
        if name != "timestamp":
            it.same(name, one, other)
    child.end()


def list_gpus(lab, it):
    """`gputop -L` prints what `nvidia-smi -L` prints."""
    lab.needs_smi()
    it.same("-L", lab.gputop("-L").stdout.rstrip(), smi("-L").rstrip())


def remapped_rows(lab, it):
    """Every field of --query-remapped-rows."""
    lab.needs_smi()
    arguments = (f"--query-remapped-rows={REMAPPED}", "--format=csv")
    it.same("the output", lab.gputop(*arguments).stdout, smi(*arguments))


def log_of(text):
    """The lines of `nvidia-smi -q` for one GPU: the path of titles, and the value."""
    found, titles = {}, []
    for line in text.splitlines():
        title, colon, value = line.strip().partition(" : ")
        depth = (len(line) - len(line.lstrip())) // 4
        titles = [*titles[:depth], title.strip()]
        if colon:
            found.setdefault("/".join(titles[1:]), value.strip())
    return found


def mib(value):
    return None if value is None else f"{value // MIB} MiB"


def enabled(value):
    return {True: "Enabled", False: "Disabled", None: "N/A"}[value]


def watts(milliwatts):
    return None if milliwatts is None else f"{milliwatts / 1000:.2f} W"


# What the page of a GPU has: (title in `nvidia-smi -q`, the value in the agent's line as
# nvidia-smi writes it). Those that move are compared by `query_gpu`.
PAGE = [
    ("Product Name", lambda gpu, detail: gpu["facts"]["name"]),
    ("Persistence Mode", lambda gpu, detail: enabled(detail["persistence_mode"])),
    ("Display Active", lambda gpu, detail: enabled(detail["display_active"])),
    ("Accounting Mode", lambda gpu, detail: enabled(detail["accounting_mode"])),
    ("Accounting Mode Buffer Size", lambda gpu, detail: str(detail["accounting_buffer_size"])),
    ("Serial Number", lambda gpu, detail: detail["serial"]),
    ("GPU UUID", lambda gpu, detail: gpu["uuid"]),
    ("Minor Number", lambda gpu, detail: str(gpu["facts"]["minor_number"])),
    ("VBIOS Version", lambda gpu, detail: detail["vbios_version"]),
    ("Inforom Version/Image Version", lambda gpu, detail: detail["inforom_image_version"]),
    ("Inforom Version/OEM Object", lambda gpu, detail: detail["inforom_oem_version"] or "N/A"),
    ("Inforom Version/ECC Object", lambda gpu, detail: detail["inforom_ecc_version"] or "N/A"),
    ("PCI/Bus Id", lambda gpu, detail: gpu["facts"]["pci_bus_id"]),
    ("PCI/Device Id", lambda gpu, detail: f"0x{detail['pci_device_id']:08X}"),
    ("PCI/Sub System Id", lambda gpu, detail: f"0x{detail['pci_subsystem_id']:08X}"),
    (
        "PCI/GPU Link Info/PCIe Generation/Max",
        lambda gpu, detail: str(detail["pcie_generation_max"]),
    ),
    ("PCI/GPU Link Info/Link Width/Max", lambda gpu, detail: f"{detail['pcie_width_max']}x"),
    ("PCI/Replays Since Reset", lambda gpu, detail: str(detail["pcie_replays"])),
    ("FB Memory Usage/Total", lambda gpu, detail: mib(gpu["load"]["memory_total_bytes"])),
    ("FB Memory Usage/Reserved", lambda gpu, detail: mib(gpu["load"]["memory_reserved_bytes"])),
    ("BAR1 Memory Usage/Total", lambda gpu, detail: mib(detail["bar1_total_bytes"])),
    ("ECC Mode/Current", lambda gpu, detail: enabled(detail["ecc_mode"])),
    ("ECC Mode/Pending", lambda gpu, detail: enabled(detail["ecc_mode_pending"])),
    (
        "ECC Errors/Volatile/DRAM Correctable",
        lambda gpu, detail: str(detail["ecc_corrected_volatile"]["dram"]),
    ),
    (
        "ECC Errors/Aggregate/DRAM Uncorrectable",
        lambda gpu, detail: str(detail["ecc_uncorrected_aggregate"]["dram"]),
    ),
    (
        "Remapped Rows/Correctable Error",
        lambda gpu, detail: str(detail["remapped_rows_correctable"]),
    ),
    (
        "Remapped Rows/Uncorrectable Error",
        lambda gpu, detail: str(detail["remapped_rows_uncorrectable"]),
    ),
    (
        "Remapped Rows/Pending",
        lambda gpu, detail: "Yes" if detail["remapped_rows_pending"] else "No",
    ),
    (
        "GPU Power Readings/Current Power Limit",
        lambda gpu, detail: watts(detail["power_limit_enforced_milliwatts"]),
    ),
    (
        "GPU Power Readings/Default Power Limit",
        lambda gpu, detail: watts(detail["power_limit_default_milliwatts"]),
    ),
    (
        "GPU Power Readings/Min Power Limit",
        lambda gpu, detail: watts(detail["power_limit_min_milliwatts"]),
    ),
    (
        "GPU Power Readings/Max Power Limit",
        lambda gpu, detail: watts(detail["power_limit_max_milliwatts"]),
    ),
    (
        "Max Clocks/SM",
        lambda gpu, detail: f"{detail['sm_clock_max_hertz'] // 1_000_000} MHz",
    ),
    (
        "Max Clocks/Memory",
        lambda gpu, detail: f"{detail['memory_clock_max_hertz'] // 1_000_000} MHz",
    ),
]


def in_words(value, gpu):
    """The value as nvidia-smi writes it; GPUs without ECC and the like have none."""
    try:
        text = value(gpu, gpu["detail"])
    except TypeError:
        return "N/A"
    return "N/A" if text in (None, "None", "Nonex") else text


def page(lab, it):
    """The page of the GPU beside `nvidia-smi -q`."""
    lab.needs_smi()
    agent = lab.child(lab.gputop_path, "agent", "--interval", "200ms", name="agent")
    agent.process.stdin.write(
        (json.dumps({"command": "detail", "gpu_uuid": lab.uuid}) + "\n").encode()
    )
    agent.process.stdin.flush()
    gpu = {}

    def has_detail():
        for one in agent.read().get("gpus", []):
            if one["uuid"] == lab.uuid:
                gpu.update(one)
        return "detail" in gpu and "facts" in gpu

    lab.wait("the detail of the GPU", has_detail)
    agent.end()
    theirs = log_of(smi("-q", f"--id={lab.uuid}"))
    titles = 0
    for title, value in PAGE:
        if title in theirs:
            titles += 1
            it.same(title, in_words(value, gpu), theirs[title])
    it.holds("half of the titles are in this nvidia-smi", titles > len(PAGE) / 2, str(titles))
    it.note(f"{titles} values")


def table(lab, it):
    """The processes of the table of nvidia-smi, with type and memory."""
    lab.needs_smi()
    child = lab.holder(900)
    lab.wait_for_memory(child.pid)
    rows = re.findall(r"^\|\s+\d+\s+\S+\s+\S+\s+(\d+)\s+(\S+)\s+.*?(\d+)MiB \|$", smi(), re.M)
    theirs = {int(pid): (kind, int(memory)) for pid, kind, memory in rows}
    own = {
        one["pid"]: (
            {"compute": "C", "graphics": "G"}.get(one["type"], "C+G"),
            one["memory_used_bytes"] // MIB,
        )
        for one in lab.gpu()["processes"]
    }
    it.same("type and MiB of the process", own.get(child.pid), theirs.get(child.pid))
    child.end()


def sm_use(lab, it):
    """The SM use of each process beside `nvidia-smi pmon`, under a steady load."""
    lab.needs_smi()
    heavy, light = lab.trainer(), lab.trainer()
    for trainer, pause in ((heavy, 0.0), (light, 0.03)):
        trainer.ask("step 20")
        trainer.process.stdin.write(f"time 14 {pause}\n".encode())
        trainer.process.stdin.flush()
    agent = lab.child(lab.gputop_path, "agent", "--interval", "1s", name="agent")
    pmon = subprocess.Popen(
        ["nvidia-smi", "pmon", "-c", "8", "-s", "u", "-i", str(lab.index)],
        stdout=subprocess.PIPE,
        text=True,
    )
    ours = {heavy.pid: [], light.pid: []}

    def reads():
        for gpu in agent.read().get("gpus", []):
            for process in gpu.get("processes") or []:
                if process["pid"] in ours and process["sm_utilization_percent"] is not None:
                    ours[process["pid"]].append(process["sm_utilization_percent"])
        return pmon.poll() is not None

    lab.wait("the end of pmon", reads, 40)
    theirs = {heavy.pid: [], light.pid: []}
    for line in pmon.stdout:
        words = line.split()
        if words[:1] == [str(lab.index)] and int(words[1]) in theirs and words[3] != "-":
            theirs[int(words[1])].append(float(words[3]))
    means = {}
    for trainer in (heavy, light):
        own, other = ours[trainer.pid][2:], theirs[trainer.pid][1:]
        if not own or not other:
            raise Failed(f"no SM use of {trainer.pid}: gputop {own}, pmon {other}")
        mean, reference = sum(own) / len(own), sum(other) / len(other)
        it.near("mean SM use in percent", round(mean), round(reference), 15)
        means[trainer.pid] = mean
        it.note(f"SM use: gputop {own}, pmon {other}")
        trainer.end()
    it.holds("the busier program has more", means[heavy.pid] > means[light.pid], means)
    agent.end()


CHECKS = [query_gpu, query_apps, list_gpus, remapped_rows, page, table, sm_use]
