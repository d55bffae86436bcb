#!/usr/bin/env python3
"""A lab of many hosts on one machine: real sshd servers, the fake driver, real processes.

Each host has its own network, PIDs, host name, boot ID and sshd. The user `alice` logs in from a
viewer's machine, which is a network namespace as well. Needs root, openssh-server and util-linux,
and a gputop and the fake driver that were built before (`cargo build --workspace`). `slurm` needs
slurm-wlm and munge as well.

    lab.py up 1-8                       start the hosts gpu-01 to gpu-08
    lab.py up 9 --no-gputop             a host without gputop
    lab.py up 10-11 --torchrun          a plain `torchrun --nproc-per-node 8` on each host
    lab.py run gputop -H 'gpu-[01-08]'  run a command as alice on the viewer's machine
    lab.py cut 3; lab.py mend 3         take the network of a host away, and give it back
    lab.py freeze 3; lab.py thaw 3      stop all processes of a host, and continue them
    lab.py reboot 3                     end a host, and start it with another boot ID
    lab.py slurm 1-8                    start hosts that are also the nodes of a Slurm cluster
    lab.py train --nodes 8 --ranks 8 --leak-rank 21 --throttled-rank 37
                                        submit a job of 64 ranks as alice, and print its number
    lab.py end-rank 42                  end the process of a rank
    slurm_steps.py JOB                  no step of --srun outlives its viewer
    ends.py                             ends of jobs over eight hosts signal nobody else
    lab.py down                         end all hosts, and remove the lab

The lab is in /tmp/gputop-hosts, or in the folder of GPUTOP_LAB, so there may be several labs.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time
import uuid

import slurm_lab

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
LAB = pathlib.Path(os.environ.get("GPUTOP_LAB", "/tmp/gputop-hosts"))
VIEWER = f"{LAB.name}-viewer"
USERS = {"alice": 2001, "bob": 2002}
GIB = 1 << 30


def run(*words, **options):
    return subprocess.run(words, check=True, **options)


def name_of(number):
    return f"gpu-{number:02}"


def numbers(text):
    """Returns the numbers of a list such as `1-8,12`."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def prepare():
    """Makes the accounts, keys and files that all hosts share."""
    if (LAB / "etc").exists():
        return
    for folder in ("etc", "keys", "hosts", "home", "bin"):
        (LAB / folder).mkdir(parents=True)
    for name in ("passwd", "group", "shadow"):
        shutil.copy(f"/etc/{name}", LAB / "etc" / name)
    for user, number in USERS.items():
        with open(LAB / "etc/passwd", "a") as file:
            file.write(f"{user}:x:{number}:{number}::/home/{user}:/bin/bash\n")
        with open(LAB / "etc/group", "a") as file:
            file.write(f"{user}:x:{number}:\n")
        with open(LAB / "etc/shadow", "a") as file:
            words = ["openssl", "passwd", "-6", "secret"]
            hashed = subprocess.check_output(words, text=True).strip()
            file.write(f"{user}:{hashed}:19000:0:99999:7:::\n")
        make_home(LAB / "home" / user, number)
    hosts = ["127.0.0.1 localhost"] + [
        f"10.77.1.{number} {name_of(number)}" for number in range(1, 255)
    ]
    (LAB / "etc/hosts").write_text("\n".join(hosts) + "\n")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", LAB / "keys/host")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", LAB / "home/alice/.ssh/id_ed25519")
    key = (LAB / "home/alice/.ssh/id_ed25519.pub").read_text()
    (LAB / "home/alice/.ssh/authorized_keys").write_text(key)
    (LAB / "home/alice/.ssh/config").write_text("Host gpu-*\n  StrictHostKeyChecking accept-new\n")
    run("chown", "-R", "2001:2001", LAB / "home/alice")
    LAB.chmod(0o755)
    run("ip", "netns", "add", VIEWER)
    for words in (
        "link set lo up",
        "link add bridge0 type bridge",
        "addr add 10.77.0.1/16 dev bridge0",
        "link set bridge0 up",
    ):
        run("ip", "-n", VIEWER, *words.split())


def make_home(folder, number):
    (folder / ".ssh").mkdir(parents=True)
    for path in (folder, folder / ".ssh"):
        path.chmod(0o700)
        os.chown(path, number, number)


def connect_network(number):
    space, link = f"{LAB.name}-{number}", f"host{number}"
    if (pathlib.Path("/run/netns") / space).exists():
        return
    run("ip", "netns", "add", space)
    run("ip", "-n", space, "link", "set", "lo", "up")
    run(
        "ip",
        "-n",
        VIEWER,
        "link",
        "add",
        link,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        space,
    )
    run("ip", "-n", VIEWER, "link", "set", link, "master", "bridge0", "up")
    run("ip", "-n", space, "addr", "add", f"10.77.1.{number}/16", "dev", "eth0")
    run("ip", "-n", space, "link", "set", "eth0", "up")


def start(number, options):
    host = LAB / "hosts" / str(number)
    host.mkdir(exist_ok=True)
    host.chmod(0o755)
    (host / "options.json").write_text(json.dumps(vars(options)))
    if options.new_boot or not (host / "boot_id").exists():
        (host / "boot_id").write_text(f"{uuid.uuid4()}\n")
    (host / "pids").write_text("")
    (host / "pids").chmod(0o666)
    (host / "dev").mkdir(exist_ok=True)
    for name in [*range(options.gpus), "-uvm", "ctl"]:
        path = host / "dev" / f"nvidia{name}"
        path.unlink(missing_ok=True)
        if options.controller:
            # Slurm sets CUDA_VISIBLE_DEVICES for device files only: these are as /dev/null.
            os.mknod(path, stat.S_IFCHR, os.makedev(1, 3))
        else:
            path.touch()
        path.chmod(0o666)
    jobs = []
    for gpu in range(options.gpus):
        for place in range(options.processes):
            user = "bob" if (gpu * options.processes + place) % 9 == 8 else "alice"
            jobs.append((gpu, USERS[user]))
    # torchrun.sh starts its processes itself.
    lines = [] if options.torchrun else [f"{gpu} {owner}\n" for gpu, owner in jobs]
    (host / "jobs").write_text("".join(lines))
    home = LAB / "home"
    if options.own_home:
        home = host / "home"
        if not home.exists():
            shutil.copytree(LAB / "home", home)
            for user, owner in USERS.items():
                run("chown", "-R", f"{owner}:{owner}", home / user)
    driver = "/nonexistent" if options.no_driver else host / "driver"
    (host / "driver").mkdir(exist_ok=True)
    library = pathlib.Path(options.driver).resolve()
    shutil.copy(library, host / "driver/libnvidia-ml.so.1")
    variables = {
        "LD_LIBRARY_PATH": driver,
        "FAKE_NVML_WORLD": host / "world.json",
        "GPUTOP_DEVICES": host / "dev/nvidia",
        "XDG_RUNTIME_DIR": "/run/user/2001",
    }
    write_world(host, options, [])
    if options.controller:
        lines = [f"{name}={value}" for name, value in variables.items()]
        file = LAB / "slurm" / f"{name_of(number)}.environment"
        file.write_text("\n".join(lines) + "\n")
        (host / "ranks").write_text("")
        (host / "ranks").chmod(0o666)
    config = [
        "Port 22",
        "ListenAddress 0.0.0.0",
        f"HostKey {LAB / 'keys' / ('other' if options.other_key else 'host')}",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",
        "UseDNS no",
        "LogLevel INFO",
        "SetEnv " + " ".join(f"{name}={value}" for name, value in variables.items()),
    ]
    if options.password:
        config.append("PubkeyAuthentication no")
    if options.other_key and not (LAB / "keys/other").exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", LAB / "keys/other")
    (host / "sshd_config").write_text("\n".join(config) + "\n")
    connect_network(number)
    environment = dict(
        os.environ,
        LAB=str(LAB),
        HOST=str(host),
        HOST_NAME=options.name or name_of(number),
        HOME_FOLDERS=str(home),
        GPUTOP="" if options.no_gputop else str(pathlib.Path(options.gputop).resolve()),
        NOEXEC_HOME="1" if options.noexec_home else "",
        TORCHRUN=str(options.gpus) if options.torchrun else "",
        SLURM_CONTROLLER=options.controller or "",
    )
    words = ["setsid", "nsenter", f"--net=/run/netns/{LAB.name}-{number}"]
    words += ["unshare", "-m", "-u", "-p", "-f", "--mount-proc", "--kill-child"]
    words += ["bash", str(HERE / "first_process.sh")]
    with open(host / "first_process.log", "a") as log:
        process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    (host / "pid").write_text(str(process.pid))
    return host, len(jobs), options


def write_world(host, options, pids):
    gpus = [
        {"persona": "H100", "uuid": f"GPU-{gpu}", "processes": []} for gpu in range(options.gpus)
    ]
    if options.lost is not None:
        gpus[options.lost] = {"persona": "H100", "lost": True}
    for place, pid in enumerate(pids):
        gpu = place // options.processes
        if gpu == options.lost:
            continue
        growth = options.leak * (1 << 20) if place == 0 else 0.0
        listed = {
            "pid": pid,
            "kinds": ["compute"],
            "memory": (4 + gpu) * GIB,
            "sm": 60 + gpu,
            "growth": growth,
        }
        gpus[gpu]["processes"].append(listed)
    world = host / "world.json"
    part = host / "world.json.part"
    part.write_text(json.dumps({"gpus": gpus}))
    part.chmod(0o644)
    part.rename(world)


def wait_until_up(host, processes, options):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pids = [int(line) for line in (host / "pids").read_text().split()]
        if len(pids) == processes:
            write_world(host, options, sorted(pids))
            return
        time.sleep(0.05)
    sys.exit(f"host {host.name} did not start: see {host}/first_process.log")


def up(options):
    prepare()
    if options.torchrun:
        options.processes = 1
    started = []
    for number in numbers(options.hosts):
        stop(number)
        started.append(start(number, options))
    for host, processes, options in started:
        wait_until_up(host, processes, options)


def stop(number):
    file = LAB / "hosts" / str(number) / "pid"
    if file.exists():
        try:
            os.kill(int(file.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            pass
        file.unlink()


def slurm(options):
    prepare()
    names = {number: name_of(number) for number in numbers(options.hosts)}
    options.controller = names[min(names)]
    (LAB / "slurm-nodes.json").write_text(json.dumps({"names": names, "gpus": options.gpus}))
    slurm_lab.prepare(LAB, names, options.gpus, options.slurm_line)
    up(options)
    slurm_lab.wait_until_up(as_alice, names)


def slurm_nodes():
    """Returns the names of the nodes by their numbers, and how many GPUs each has."""
    saved = json.loads((LAB / "slurm-nodes.json").read_text())
    return {int(number): name for number, name in saved["names"].items()}, saved["gpus"]


def train(options):
    names, options.gpus = slurm_nodes()
    slurm_lab.train(LAB, as_alice, names, options)


def end_rank(options):
    names, _ = slurm_nodes()
    for number, pid, _, rank, _ in slurm_lab.ranks_of(LAB, names):
        if rank == options.rank:
            first = (LAB / "hosts" / str(number) / "pid").read_text()
            # The first process of the host is a child of that one.
            child = pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split()[0]
            run("nsenter", f"--pid=/proc/{child}/ns/pid", "kill", "-KILL", str(pid))


def reboot(options):
    for number in numbers(options.hosts):
        saved = json.loads((LAB / "hosts" / str(number) / "options.json").read_text())
        again = argparse.Namespace(**{**saved, "new_boot": True})
        stop(number)
        wait_until_up(*start(number, again))


def processes_of(number):
    """Returns the PIDs of all processes of a host, as this machine sees them."""
    first = int((LAB / "hosts" / str(number) / "pid").read_text())
    found, waiting = [], [first]
    while waiting:
        pid = waiting.pop()
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        below = [int(child) for child in children.read_text().split()] if children.exists() else []
        found += below
        waiting += below
    return found


def send(number, which):
    for pid in processes_of(number):
        os.kill(pid, which)


def set_link(number, state):
    run("ip", "-n", VIEWER, "link", "set", f"host{number}", state)


TASKS = {
    "stop": stop,
    "cut": lambda number: set_link(number, "down"),
    "mend": lambda number: set_link(number, "up"),
    "freeze": lambda number: send(number, signal.SIGSTOP),
    "thaw": lambda number: send(number, signal.SIGCONT),
}


def viewer_command(words):
    command = ["nsenter", f"--net=/run/netns/{VIEWER}", "unshare", "-m"]
    return command + ["bash", str(HERE / "viewer.sh"), str(LAB), *words]


def as_viewer(words):
    command = viewer_command(words)
    os.execvp(command[0], command)


def as_alice(words, **options):
    return subprocess.run(
        viewer_command(words), check=False, text=True, capture_output=True, **options
    )


def down(_options):
    slurm_lab.stop(LAB)
    for host in (LAB / "hosts").glob("*"):
        stop(int(host.name))
        subprocess.run(["ip", "netns", "del", f"{LAB.name}-{host.name}"], check=False)
    subprocess.run(["ip", "netns", "del", VIEWER], check=False)
    shutil.rmtree(LAB, ignore_errors=True)


SINGLE_TASKS = {"reboot": reboot, "train": train, "end-rank": end_rank, "down": down}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(dest="task", required=True)
    add_starters(tasks)
    for name in ("reboot", *TASKS):
        tasks.add_parser(name).add_argument("hosts")
    trainer = tasks.add_parser("train")
    trainer.add_argument("--name", default="llama")
    trainer.add_argument("--nodes", type=int, default=2)
    trainer.add_argument("--ranks", type=int, default=4, help="ranks on each node")
    trainer.add_argument("--array", help="tasks of an array of jobs, such as 1-3")
    trainer.add_argument("--leak", type=float, default=60.0, help="MiB a second")
    trainer.add_argument("--leak-rank", type=int)
    trainer.add_argument("--throttled-rank", type=int, help="a rank whose GPU is too hot")
    tasks.add_parser("end-rank").add_argument("rank", type=int)
    tasks.add_parser("run").add_argument("words", nargs=argparse.REMAINDER)
    tasks.add_parser("down")
    perform(parser.parse_args())


def add_starters(tasks):
    starter = tasks.add_parser("up")
    add_options(starter, processes=2)
    starter.set_defaults(controller=None)
    starter = tasks.add_parser("slurm")
    add_options(starter, processes=0)
    starter.add_argument(
        "--slurm-line", action="append", default=[], help="a further line of slurm.conf"
    )


def add_options(starter, processes):
    starter.add_argument("hosts", help="numbers, such as 1-8,12")
    starter.add_argument(
        "--gputop",
        default=REPOSITORY / "target/release/gputop",
        help="the gputop of the hosts and of the viewer",
    )
    starter.add_argument("--driver", default=REPOSITORY / "target/debug/libfake_nvml.so")
    starter.add_argument("--gpus", type=int, default=8)
    starter.add_argument("--processes", type=int, default=processes, help="processes for each GPU")
    starter.add_argument(
        "--leak", type=float, default=0.0, help="MiB a second that the first process takes"
    )
    starter.add_argument(
        "--torchrun",
        action="store_true",
        help="the processes are the ranks of a plain torchrun, one on each GPU",
    )
    starter.add_argument("--lost", type=int, help="a GPU that is lost")
    starter.add_argument("--name", help="the name by which the host calls itself")
    starter.add_argument("--no-gputop", action="store_true")
    starter.add_argument("--no-driver", action="store_true")
    starter.add_argument(
        "--own-home", action="store_true", help="home folders that no other host shares"
    )
    starter.add_argument("--noexec-home", action="store_true")
    starter.add_argument("--new-boot", action="store_true")
    starter.add_argument("--other-key", action="store_true", help="another host key than the rest")
    starter.add_argument(
        "--password", action="store_true", help="log in by the password `secret` only"
    )


def perform(options):
    if options.task in ("up", "slurm"):
        options.gputop, options.driver = str(options.gputop), str(options.driver)
        {"up": up, "slurm": slurm}[options.task](options)
        program = LAB / "bin/gputop"
        program.unlink(missing_ok=True)
        program.symlink_to(pathlib.Path(options.gputop).resolve())
    elif options.task == "run":
        as_viewer(options.words)
    elif options.task in SINGLE_TASKS:
        SINGLE_TASKS[options.task](options)
    else:
        for number in numbers(options.hosts):
            TASKS[options.task](number)


if __name__ == "__main__":
    main()
