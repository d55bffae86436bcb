"""Runs `gputop --prometheus URL` in a terminal of 120 by 40 characters, which tmux keeps."""

import itertools
import os
import pathlib
import shlex
import subprocess
import time
from collections.abc import Callable

import servers

WIDTH, HEIGHT = 120, 40
# Each viewer has a tmux server of its own.
NUMBERS = itertools.count()


class Viewer:
    """The viewer and its terminal."""

    def __init__(self, gputop: pathlib.Path, folder: pathlib.Path, arguments: list[str]) -> None:
        self.name = f"gputop-fleet-{os.getpid()}-{next(NUMBERS)}"
        self.folder = folder
        self.programs = folder / "programs"
        self.ssh_record = folder / "ssh.txt"
        self.make_ssh()
        variables = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "NO_PROXY": "*",
        }
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        command = f"exec env -u TMUX {given} {shlex.join([str(gputop), *arguments])}"
        # The last screen can be read when gputop has ended.
        self.configuration = folder / "tmux.conf"
        text = "set -g remain-on-exit on\nset -g status off\n"
        self.configuration.write_text(text, encoding="utf-8")
        self.began = time.monotonic()
        self.tmux("new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), command)
        self.pid = int(self.tmux("list-panes", "-F", "#{pane_pid}"))

    def make_ssh(self) -> None:
        """Puts a stand-in for ssh first in PATH, which records its arguments."""
        self.programs.mkdir(exist_ok=True)
        self.ssh_record.write_text("", encoding="utf-8")
        program = self.programs / "ssh"
        record = shlex.quote(str(self.ssh_record))
        text = f"""#!/bin/sh
for argument in "$@"; do printf '%s\\n' "$argument" >> {record}; done
printf -- '--- end\\n' >> {record}
echo "ssh: the stand-in reaches no host" >&2
exit 255
"""
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self.name, "-f", str(self.configuration), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"tmux {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """Presses keys by the names of tmux: `Enter`, `Down`, `q`."""
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def wait(
        self, is_there: Callable[[str], bool], seconds: float, step_s: float = 0.05
    ) -> float | None:
        """Waits for a screen. Returns the seconds until then; `None`: it never came."""
        began = time.monotonic()
        while True:
            if is_there(self.screen()):
                return time.monotonic() - began
            if time.monotonic() - began > seconds:
                return None
            time.sleep(step_s)

    def has_ended(self) -> bool:
        return self.tmux("list-panes", "-F", "#{pane_dead}").strip() == "1"

    def cpu_seconds(self) -> float:
        return servers.cpu_seconds(self.pid)

    def peak_memory_mib(self) -> float:
        return servers.peak_memory_mib(self.pid)

    def end(self) -> None:
        subprocess.run(["tmux", "-L", self.name, "kill-server"], capture_output=True)
