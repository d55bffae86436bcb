"""The Slurm of the lab: its files, and jobs whose ranks are real processes."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30

CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={controller}(10.77.1.{first})
AuthType=auth/munge
CryptoType=crypto/munge
SlurmUser=root
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/run/slurmd
StateSaveLocation={lab}/slurm-state
SlurmctldLogFile={lab}/slurm-state/slurmctld.log
SlurmdLogFile={lab}/slurm-state/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={lab}/slurm/task_prolog.sh
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
GresTypes=gpu
SlurmdTimeout=60
{extra}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def prepare(lab, names, gpus, extra):
    """Writes the files of Slurm, and starts munge for the viewer's machine."""
    first = min(names)
    folder = lab / "slurm"
    folder.mkdir(exist_ok=True)
    (lab / "slurm-state").mkdir(exist_ok=True)
    for script in ("task_prolog.sh", "train.sh"):
        shutil.copy(HERE / script, folder / script)
        (folder / script).chmod(0o755)
    nodes = [
        f"NodeName={name} NodeAddr=10.77.1.{number} CPUs=64 RealMemory=2000"
        f" Gres=gpu:h100:{gpus} State=UNKNOWN"
        for number, name in names.items()
    ]
    text = CONFIGURATION.format(
        controller=names[first], first=first, lab=lab, extra="\n".join([*nodes, *extra])
    )
    (folder / "slurm.conf").write_text(text)
    devices = [
        f"NodeName={name} Name=gpu Type=h100 File={lab}/hosts/{number}/dev/nvidia[0-{gpus - 1}]"
        for number, name in names.items()
    ]
    (folder / "gres.conf").write_text("\n".join(devices) + "\n")
    munge = lab / "munge"
    if munge.exists():
        return
    (munge / "viewer").mkdir(parents=True)
    (munge / "munge.key").write_bytes(os.urandom(128))
    (munge / "munge.key").chmod(0o600)
    for path in (munge, munge / "munge.key", munge / "viewer"):
        shutil.chown(path, "munge", "munge")
    socket = munge / "viewer"
    words = ["setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged"]
    words += ["--force", f"--key-file={munge}/munge.key", f"--socket={socket}/munge.socket.2"]
    words += [f"--pid-file={socket}/munged.pid", f"--log-file={socket}/munged.log"]
    words += [f"--seed-file={socket}/seed"]
    subprocess.run(words, check=True)


def wait_until_up(as_alice, names):
    """Waits until Slurm has all nodes."""
    words = ["sinfo", "-h", "-N", "-o", "%N %T"]
    deadline = time.monotonic() + 60
    printed = ""
    while time.monotonic() < deadline:
        printed = as_alice(words).stdout
        ready = [line.split()[0] for line in printed.splitlines() if line.endswith("idle")]
        if set(names.values()) <= set(ready):
            return
        time.sleep(0.2)
    sys.exit(f"Slurm did not start: {printed}")


def train(lab, as_alice, names, options):
    """Submits a job of which each task is a rank on a GPU of its own. Prints its ID."""
    script = f"#!/bin/bash\nsrun --kill-on-bad-exit=0 {lab}/slurm/train.sh\n"
    words = ["sbatch", "--parsable", "-J", options.name, f"-N{options.nodes}"]
    words += [f"--ntasks-per-node={options.ranks}", f"--gres=gpu:{options.ranks}", "-o/dev/null"]
    if options.array:
        words.append(f"--array={options.array}")
    job = as_alice(words, input=script)
    if job.returncode != 0:
        sys.exit(job.stderr)
    number = job.stdout.strip()
    if options.array:
        print(number)
        return
    deadline = time.monotonic() + 60
    ranks = options.nodes * options.ranks
    while time.monotonic() < deadline:
        found = ranks_of(lab, names, number)
        if len(found) == ranks:
            break
        time.sleep(0.1)
    else:
        sys.exit(f"job {number} did not start: see {lab}/slurm-state/slurmctld.log")
    faults = {"leak": options.leak_rank, "mib": options.leak, "hot": options.throttled_rank}
    faults["began"] = time.time()
    (lab / "faults.json").write_text(json.dumps(faults))
    write_worlds(lab, names, options.gpus)
    print(number)


def ranks_of(lab, names, job=None):
    """Returns the ranks that have started: number of the host, PID, GPU, rank, and GiB that it
    holds."""
    found = []
    for number in names:
        file = lab / "hosts" / str(number) / "ranks"
        for line in file.read_text().splitlines() if file.exists() else []:
            pid, gpu, rank, of_job, *gib = line.split()
            if job is None or of_job == job:
                found.append((number, int(pid), int(gpu), int(rank), int(*gib or [60])))
    return found


def write_worlds(lab, names, count):
    """Lets the drivers list the ranks of all jobs: those that have ended are not listed."""
    file = lab / "faults.json"
    faults = json.loads(file.read_text()) if file.exists() else {}
    worlds = {
        number: [
            {
                "persona": "H100",
                "uuid": f"GPU-{number}-{gpu}",
                "processes": [],
                "utilization": {"gpu": 0, "memory": 0},
            }
            for gpu in range(count)
        ]
        for number in names
    }
    for number, pid, place, rank, gib in ranks_of(lab, names):
        gpu = worlds[number][place]
        listed = {"pid": pid, "kinds": ["compute"], "memory": gib * GIB, "sm": 97}
        if rank == faults.get("leak"):
            listed.update(memory=50 * GIB, growth=faults["mib"] * (1 << 20), since=faults["began"])
        if rank == faults.get("hot"):
            gpu.update(throttle=0x40, clocks={"graphics": 1200, "sm": 1200})
            gpu.update(temperature={"gpu": 88}, power={"usage": 402_000})
        gpu["utilization"] = {"gpu": 97, "memory": 41}
        gpu["processes"].append(listed)
    for number, gpus in worlds.items():
        world = lab / "hosts" / str(number) / "world.json"
        part = world.with_suffix(".part")
        part.write_text(json.dumps({"gpus": gpus}))
        part.chmod(0o644)
        part.rename(world)


def stop(lab):
    """Ends the munge of the viewer's machine."""
    file = lab / "munge/viewer/munged.pid"
    if file.exists():
        os.kill(int(file.read_text()), 15)
