//! The files, variables and settings that `--help` and the manual page list.

use std::fmt::Write;

/// The files that gputop reads and writes, each with its purpose.
pub(crate) const FILES: &[(&str, &str)] = &[
    (
        "$XDG_CONFIG_HOME/gputop/config.toml, ~/.config/gputop/config.toml",
        "The settings of the user. `W` writes it. Flags take precedence over variables, and variables over the file. Unknown \
         keys are reported and ignored; invalid values are errors that name the line.",
    ),
    (
        "$XDG_STATE_HOME/gputop/screen.toml, ~/.local/state/gputop/screen.toml",
        "The settings changed on the screen in the last run. config.toml takes precedence.",
    ),
    (
        "$XDG_STATE_HOME/gputop/history/",
        "The history of each host for the next session, 64 MiB and 7 days at most; `--no-history` turns it off.",
    ),
    (
        "$XDG_STATE_HOME/gputop/recordings/",
        "The recordings of `R` and of `gputop record`.",
    ),
    (
        "$XDG_STATE_HOME/gputop/recorder.json",
        "Which recording a running `gputop record` writes: `gputop orphans` and `gputop --once` go on from it, while `gputop idle` gets the recorder's lines.",
    ),
    (
        "$XDG_STATE_HOME/gputop/rests.json",
        "The news that `gputop rest` lets rest.",
    ),
    (
        "$XDG_STATE_HOME/gputop/kills.jsonl",
        "The audit log: one line for each signal, with its time and result.",
    ),
    (
        "$XDG_STATE_HOME/gputop/ooms/",
        "The reports that `gputop ooms` lists, on programs that ran out of GPU memory.",
    ),
    (
        "$XDG_CACHE_HOME/gputop/, ~/.cache/gputop/",
        "The Python files of the probe, for `gputop run` and `gputop attach`.",
    ),
    (
        "$XDG_RUNTIME_DIR/gputop/",
        "The sockets of the ssh connections of `gputop hosts connect`, while somebody is logged in; without that folder, they are in \
         /tmp/gputop-UID/.",
    ),
    (
        "~/.cache/gputop/, $XDG_RUNTIME_DIR/gputop/, /dev/shm/gputop-UID/, /tmp/gputop-UID/",
        "On other hosts: the copy of gputop that `-H` makes where it is not installed, in the first of these folders that may hold a \
         program. `gputop hosts clean` removes it.",
    ),
    (
        "$TMPDIR/gputop-last-states-*/",
        "The last states of a program, while `gputop run --fail-on-leak` runs.",
    ),
    (
        "/tmp/gputop-UID/",
        "A locked file for each GPU on which a command of `gputop free` runs, the socket through which `gputop record` \
         passes its lines on to the user's gputops on other hosts, and the locks of agents that read this host for them.",
    ),
];

/// The variables that gputop reads or sets, each with its purpose.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    (
        "GPUTOP_INTERVAL, GPUTOP_THEME, GPUTOP_COLUMNS, GPUTOP_GPU_COLUMNS, GPUTOP_GPU_VIEW, GPUTOP_SORT, GPUTOP_GROUP, \
         GPUTOP_CONFIG, GPUTOP_NVML_LIB",
        "Defaults of the flags with these names.",
    ),
    (
        "GPUTOP_ALERT, GPUTOP_ALERT_SENTENCE, GPUTOP_ALERT_HOST, GPUTOP_ALERT_GPU, GPUTOP_ALERT_PID, GPUTOP_ALERT_USER, \
         GPUTOP_ALERT_COMMAND, GPUTOP_ALERT_RATE_BYTES_PER_S, GPUTOP_ALERT_OOM_IN_S, GPUTOP_ALERT_LEAK_LINE",
        "Describe the alert to the program of `--on-alert`; those that do not apply are not set.",
    ),
    (
        "GPUTOP_ALERT_GPU_UUID, GPUTOP_ALERT_JOB, GPUTOP_ALERT_JOB_ORIGIN, GPUTOP_ALERT_PHASE, GPUTOP_ALERT_START_TICKS, GPUTOP_ALERT_BOOT_ID",
        "The same, for the program of `gputop record --on-alert`.",
    ),
    (
        "GPUTOP_PROBE",
        "`0` keeps the probe of `gputop run` out of the program.",
    ),
    (
        "GPUTOP_PROBE_INTERVAL",
        "Seconds between two reports of the probe.",
    ),
    (
        "GPUTOP_LAST_STATES",
        "Set by `gputop run --fail-on-leak` for its command: the folder in which the probes leave their last states.",
    ),
    (
        "GPUTOP_PROBE_FOLDER, PYTHONPATH",
        "`gputop run` sets the first to the folder of the probe for its command, and puts that folder first into the second.",
    ),
    (
        "GPUTOP_LAUNCHERS, GPUTOP_SHARED_LINES, GPUTOP_DEMO_ROLE",
        "Set by gputop for its agents and for the processes of `--demo`: what the agent reads, and as which process it runs.",
    ),
    (
        "GPUTOP_DEVICES",
        "For tests of gputop: the beginning of the paths of device files and locks instead of /dev/nvidia and /tmp/gputop-UID.",
    ),
    (
        "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME, XDG_RUNTIME_DIR, HOME",
        "Where the files above are.",
    ),
    (
        "CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER",
        "`gputop free` takes only GPUs that these show to CUDA, and sets them for its command.",
    ),
    (
        "PATH, VIRTUAL_ENV",
        "Where `gputop estimate` finds the Python of your environment. On a node of `--srun`, gputop is also searched beside this one.",
    ),
    (
        "TMPDIR",
        "Where `gputop run --fail-on-leak` makes the folder of the last states [default: /tmp].",
    ),
    (
        "SHELL",
        "On other hosts: the shell that is asked where gputop is installed.",
    ),
    (
        "SLURM_CONF, SLURM_CLUSTERS",
        "Passed on to `srun`, as other settings of Slurm's connection are. Options of the job in which gputop itself runs are not: \
         SLURM_*, SLURMD_* and SRUN_* are removed for its steps.",
    ),
    (
        "SUDO_UID",
        "Who became root through sudo: before a process of that user is ended, no warning says that it is another user's.",
    ),
    (
        "KUBERNETES_SERVICE_HOST",
        "If set, `gputop doctor` says that it runs in Kubernetes.",
    ),
    (
        "PYTEST_XDIST_WORKER, RANK",
        "Name the process in the last state that the probe writes for `gputop run --fail-on-leak`.",
    ),
    (
        "PYTORCH_NO_CUDA_MEMORY_CACHING, PYTORCH_NO_HIP_MEMORY_CACHING",
        "If set, `gputop run --fail-on-leak` cannot judge the program.",
    ),
    (
        "HTTPS_PROXY, https_proxy, ALL_PROXY, all_proxy, NO_PROXY, no_proxy",
        "The HTTP proxy of notifications, and the hosts that are reached without it.",
    ),
    (
        "SSL_CERT_FILE, SSL_CERT_DIR",
        "Certificates that notifications trust instead of those of the system.",
    ),
    ("NO_COLOR", "Disables colours if set and not empty."),
    (
        "TERM, COLORTERM, LC_ALL, LC_CTYPE, LANG",
        "The abilities of the terminal. With `TERM=dumb`, gputop prints a table once.",
    ),
    (
        "COLORFGBG",
        "The background of a terminal that does not report it, for the theme `auto`.",
    ),
    (
        "COLUMNS",
        "The width of tables where the output is no terminal.",
    ),
    (
        "LD_LIBRARY_PATH",
        "Where the loader searches the NVML library first.",
    ),
];

/// The keys of the settings file, each with its values.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    (
        "theme, interval, columns, gpu_columns, gpu_view, sort, group",
        "As the flags with these names.",
    ),
    ("mine", "true: only your own processes, as `--mine`."),
    ("host", "false: no host line, as `--no-host`."),
    ("mouse", "false: as `--no-mouse`."),
    ("ascii", "true: as `--ascii`."),
    ("history", "false: as `--no-history`."),
    (
        "[colors]",
        "Colours of roles, as \"#rrggbb\", instead of those of the theme. docs/settings.md names the roles.",
    ),
    (
        "[hosts]",
        "Groups of hosts: `lab = [\"gpu-[01-08]\", \"big\"]` is `-H @lab`.",
    ),
    (
        "[host.NAME]",
        "A host with a command of its own, for `-H NAME`: `via`, as `--via`.",
    ),
    (
        "[ssh]",
        "How `-H` and `--hosts` connect: `options`, a list of options for ssh, which stand after those that protect your sessions; \
         `connects`, the most connects at once to one server (8); `upload` (false: as `--no-upload`).",
    ),
    (
        "[[launchers]]",
        "A table for each launcher that gputop does not know: `name`, `programs`, `children`, `variables` and `place`, so that its \
         children are recognised when it is gone. docs/leftovers.md has an example.",
    ),
    (
        "[notify.NAME]",
        "A table for each notification of `gputop record --notify NAME`: `kind` (ntfy, slack, discord, mattermost, teams or webhook); \
         `url_file`, a file that only you can read, or `url_env`, a variable, or `url` for a URL of this computer; `token_file` or \
         `token_env` for ntfy and webhook; `command` (true: command lines are sent, too); `kinds`, `users`, `gpus` and `jobs`, lists \
         of which a message must name one; `priority` and `tags` for ntfy. docs/alerts.md has an example.",
    ),
];

/// Returns the end of `--help`.
pub(super) fn after_help() -> String {
    let mut text = String::new();
    for (title, rows) in [
        ("Files", FILES),
        ("Variables", VARIABLES),
        ("Settings in config.toml", SETTINGS),
    ] {
        let _infallible = writeln!(text, "{title}:");
        for (names, purpose) in rows {
            let _infallible = writeln!(text, "  {names}\n          {purpose}");
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod tests;
