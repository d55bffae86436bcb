//! Finds where a process was started, by its control group and environment: job, container, pod,
//! service, terminal. Also parses the other environment variables that gputop uses.

use super::distributed;
use crate::base::text::Text;
use crate::protocol::launchers::{self, launchers};
use crate::protocol::snapshot::{DistributedFacts, Missing, Reading};

/// Where a process was started. If several variants apply, the first in this order is shown: for a
/// container in a Slurm job, the job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The job's number, shown as `slurm 4711`; its SLUID where only the control group names it.
    Slurm(Text),
    /// The pod's name or the beginning of its ID, shown as `kubernetes train-0`.
    Kubernetes(Text),
    /// The runtime and the beginning of the container's ID, shown as `docker 3f2a91c0d1e2`.
    Container(&'static str, Text),
    Tmux,
    Screen,
    /// The systemd unit: `trainer.service`.
    Service(Text),
}

impl Origin {
    /// Whether a process with this origin may see only some of the host's GPUs.
    pub(super) fn is_confined(&self) -> bool {
        matches!(
            self,
            Self::Slurm(_) | Self::Kubernetes(_) | Self::Container(..)
        )
    }

    fn text(&self) -> Text {
        match self {
            Self::Slurm(job) => format!("slurm {job}").into(),
            Self::Kubernetes(pod) => format!("kubernetes {pod}").into(),
            Self::Container(runtime, id) => format!("{runtime} {id}").into(),
            Self::Tmux => "tmux".into(),
            Self::Screen => "screen".into(),
            Self::Service(unit) => unit.clone(),
        }
    }
}

/// The variables of a process's environment that gputop uses. Each is `None` when it is not set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::agent) struct Environment {
    pub(super) origin: Option<Origin>,
    /// `TORCHELASTIC_RUN_ID`.
    pub(super) elastic_run: Option<Text>,
    /// The name of the launcher that set all of its variables, by the launch table.
    pub(super) launcher: Option<Text>,
    /// `RANK`, or `LOCAL_RANK` where `RANK` is not set.
    pub(super) rank: Option<Text>,
    pub(super) distributed: Option<Box<DistributedFacts>>,
    /// `JPY_PARENT_PID`: the PID of the server that started a notebook's kernel.
    pub(super) notebook_server: Option<u32>,
    pub(super) cuda: CudaEnvironment,
    pub(super) probe: ProbeSetup,
}

/// Whether `gputop run` started a process, and whether Python can load the probe there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::agent) enum ProbeSetup {
    /// `gputop run` did not start it.
    #[default]
    Absent,
    /// The probe is in `PYTHONPATH`.
    OnPath,
    /// `gputop run` started it, and the probe is no longer in `PYTHONPATH`.
    PathDropped,
    /// `GPUTOP_PROBE` is `0`.
    TurnedOff,
}

impl ProbeSetup {
    /// Returns the setup that an environment block has.
    pub(in crate::agent) fn parse(environ: &[u8]) -> Self {
        Environment::parse(environ, 0).probe
    }

    /// The arguments are the values of `GPUTOP_PROBE`, of the variable that `gputop run` sets, and
    /// of `PYTHONPATH`.
    fn new(switch: Option<&[u8]>, folder: Option<&[u8]>, path: Option<&[u8]>) -> Self {
        let is_on_path = || {
            path.is_some_and(|path| {
                path.split(|byte| *byte == b':')
                    .any(|part| Some(part) == folder)
            })
        };
        match (switch, folder) {
            (Some(b"0"), _) => Self::TurnedOff,
            (_, None) => Self::Absent,
            (_, Some(_)) if is_on_path() => Self::OnPath,
            (_, Some(_)) => Self::PathDropped,
        }
    }
}

/// The variables that concern CUDA's devices and PyTorch's allocator in a process, as they were
/// when the program started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::agent) struct CudaEnvironment {
    /// `CUDA_VISIBLE_DEVICES`; an empty value counts as set.
    pub(in crate::agent) visible: Option<Text>,
    /// `CUDA_DEVICE_ORDER`.
    pub(in crate::agent) order: Option<Text>,
    /// Whether the process may see only some of the host's GPUs. If so, CUDA counts only these.
    pub(in crate::agent) is_confined: bool,
    /// Whether `PYTORCH_NO_CUDA_MEMORY_CACHING` is set, to any value: then PyTorch's allocator
    /// keeps no statistics.
    pub(in crate::agent) is_uncached: bool,
}

impl Environment {
    /// The most bytes of a value that are kept.
    const MOST: usize = 128;
    /// The most bytes of `CUDA_VISIBLE_DEVICES` that are kept: the name of a MIG instance has 40
    /// letters, and a host has dozens of instances.
    const MOST_VISIBLE: usize = 1024;
    /// The variables whose values are facts about the job and its GPUs, beside those of
    /// [`distributed`], and those of which the name alone is shown.
    const FACTS: &str =
        "CUDA_DEVICE_ORDER CUDA_VISIBLE_DEVICES JPY_PARENT_PID POD_NAME TORCHELASTIC_RUN_ID";
    const NAMES: &str = "GPUTOP_PROBE GPUTOP_PROBE_FOLDER HOSTNAME KUBERNETES_SERVICE_HOST PYTHONPATH \
                         PYTORCH_NO_CUDA_MEMORY_CACHING STY TMUX";

    /// Returns the variables that gputop uses, sorted by name: `NAME=value` where the value is a
    /// fact about the job or its GPUs, else the name alone. No other variable leaves the agent.
    pub(in crate::agent) fn shown_variables(environ: &[u8]) -> Vec<Text> {
        let is_in = |names: &str, name: &str| names.split(' ').any(|known| known == name);
        let shown = environ.split(|byte| *byte == 0).filter_map(|variable| {
            let name = variable
                .split(|byte| *byte == b'=')
                .next()
                .and_then(|name| std::str::from_utf8(name).ok())?;
            let is_launchers = || launchers().iter().any(|launcher| launcher.sets(name));
            match () {
                () if is_in(Self::FACTS, name) || distributed::is_fact(name) => Some(Text::new(
                    &variable[..variable.len().min(Self::MOST_VISIBLE)],
                )),
                () if is_in(Self::NAMES, name) || is_launchers() => Some(name.into()),
                () => None,
            }
        });
        let mut shown: Vec<Text> = shown.collect();
        shown.sort_unstable();
        shown
    }

    /// Parses the environment of the process with this PID.
    pub(super) fn parse(environ: &[u8], pid: u32) -> Self {
        let whole = |name: &[u8]| {
            let mut variables = environ.split(|byte| *byte == 0);
            variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix(b"="))
        };
        let value = |name: &[u8], most: usize| {
            whole(name).map(|value| Text::new(&value[..value.len().min(most)]))
        };
        let get = |name: &[u8]| value(name, Self::MOST).filter(|value| !value.as_str().is_empty());
        let slurm = || get(b"SLURM_JOB_ID").map(Origin::Slurm);
        let pod = || {
            get(b"KUBERNETES_SERVICE_HOST")?;
            Some(Origin::Kubernetes(
                get(b"POD_NAME").or_else(|| get(b"HOSTNAME"))?,
            ))
        };
        let tmux = || get(b"TMUX").map(|_| Origin::Tmux);
        let launcher = launchers()
            .iter()
            .find(|launcher| launcher.has_set(pid, |name| whole(name.as_bytes())));
        let demo = || get(launchers::DEMO_VARIABLE.as_bytes()).map(|_| launchers::DEMO.into());
        let screen = || get(b"STY").map(|_| Origin::Screen);
        Self {
            origin: slurm().or_else(pod).or_else(tmux).or_else(screen),
            elastic_run: get(b"TORCHELASTIC_RUN_ID"),
            launcher: launcher
                .map(|launcher| launcher.name.as_str().into())
                .or_else(demo),
            rank: get(b"RANK").or_else(|| get(b"LOCAL_RANK")),
            distributed: distributed::parse(|name| get(name.as_bytes())),
            notebook_server: get(b"JPY_PARENT_PID").and_then(|pid| pid.as_str().parse().ok()),
            cuda: CudaEnvironment {
                visible: value(b"CUDA_VISIBLE_DEVICES", Self::MOST_VISIBLE),
                order: get(b"CUDA_DEVICE_ORDER"),
                is_confined: false,
                is_uncached: value(b"PYTORCH_NO_CUDA_MEMORY_CACHING", Self::MOST).is_some(),
            },
            probe: ProbeSetup::new(
                whole(b"GPUTOP_PROBE"),
                whole(b"GPUTOP_PROBE_FOLDER"),
                whole(b"PYTHONPATH"),
            ),
        }
    }
}

/// Combines the origins found in the control group and in the environment. If the control group
/// shows none, returns that of the environment.
pub(super) fn origin(
    group: Option<&Origin>,
    environment: &Reading<Option<Origin>>,
) -> Reading<Text> {
    match (group, environment) {
        // A pod's name, which only the environment has, is more useful than its ID; and squeue
        // lists jobs by number.
        (Some(Origin::Kubernetes(_)), Ok(Some(named @ Origin::Kubernetes(_)))) => Ok(named.text()),
        (Some(Origin::Slurm(job)), Ok(Some(numbered @ Origin::Slurm(_))))
            if is_sluid(job.as_str()) =>
        {
            Ok(numbered.text())
        }
        // Slurm puts a process into the control group of its job. Its environment may be inherited
        // from another job.
        (Some(job @ Origin::Slurm(_)), Ok(Some(Origin::Slurm(_)))) => Ok(job.text()),
        (Some(group), Ok(Some(other))) => Ok(group.min(other).text()),
        (Some(group), _) => Ok(group.text()),
        (None, Ok(environment)) => environment
            .as_ref()
            .map(Origin::text)
            .ok_or(Missing::Unsupported),
        (None, Err(why)) => Err(*why),
    }
}

/// Returns the origin that `/proc/PID/cgroup` shows: one line for each hierarchy of version 1, and
/// one line for version 2.
pub(super) fn from_cgroup(cgroup: &[u8]) -> Option<Origin> {
    let lines = cgroup
        .split(|byte| *byte == b'\n')
        .filter_map(|line| str::from_utf8(line).ok());
    // The path is the rest of the line: it may contain colons itself.
    lines
        .filter_map(|line| from_cgroup_path(line.splitn(3, ':').nth(2)?))
        .min()
}

/// Returns the job of Slurm that a text such as `/proc/self/cgroup` shows; `None` outside of a job.
pub(in crate::agent) fn slurm_job_of(cgroup: &[u8]) -> Option<Text> {
    match from_cgroup(cgroup)? {
        Origin::Slurm(job) => Some(job),
        _ => None,
    }
}

fn from_cgroup_path(path: &str) -> Option<Origin> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    slurm(&parts)
        .or_else(|| pod(&parts))
        .or_else(|| container(&parts))
        .or_else(|| {
            parts
                .iter()
                .any(|part| part.starts_with("tmux"))
                .then_some(Origin::Tmux)
        })
        .or_else(|| service(&parts))
}

/// Matches `/slurm/uid_1000/job_4711/step_0`,
/// `/system.slice/slurmstepd.scope/job_4711/step_batch/user`, and, since Slurm 26.05,
/// `/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0`.
fn slurm(parts: &[&str]) -> Option<Origin> {
    let place = parts.iter().position(|part| part.contains("slurm"))?;
    let is_number = |job: &&str| job.bytes().all(|byte| byte.is_ascii_digit());
    let job = match parts[place..]
        .iter()
        .find_map(|part| part.strip_prefix("job_"))
    {
        Some(job) => Some(job).filter(is_number),
        None => parts[place..]
            .windows(2)
            .find(|pair| is_sluid(pair[0]) && pair[1].starts_with("step_"))
            .map(|pair| pair[0]),
    };
    job.map(|job| Origin::Slurm(job.into()))
}

/// Whether this is the name of a job by Slurm's SLUID: an `s` and 13 digits of Crockford's base 32.
fn is_sluid(text: &str) -> bool {
    let is_digit =
        |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase() && !b"ILOU".contains(&byte);
    text.strip_prefix('s')
        .is_some_and(|digits| digits.len() == 13 && digits.bytes().all(is_digit))
}

/// Matches `/kubepods/burstable/pod1b2c3d4e-…/ID` and
/// `/…/kubepods-burstable-pod1b2c3d4e_….slice/cri-containerd-ID.scope`.
fn pod(parts: &[&str]) -> Option<Origin> {
    let place = parts.iter().position(|part| part.contains("kubepods"))?;
    let uid = parts[place..].iter().find_map(|part| {
        let start = part
            .rfind("-pod")
            .map(|offset| offset + 4)
            .or_else(|| part.starts_with("pod").then_some(3))?;
        part.get(start..start + 8).filter(|uid| is_hex(uid))
    })?;
    Some(Origin::Kubernetes(uid.into()))
}

/// Matches a part that ends in an ID of 64 hexadecimal digits. The name of the runtime is before
/// the ID.
fn container(parts: &[&str]) -> Option<Origin> {
    const RUNTIMES: [(&str, &str); 6] = [
        ("docker", "docker"),
        ("libpod", "podman"),
        ("cri-containerd", "containerd"),
        ("crio", "cri-o"),
        ("nerdctl", "containerd"),
        ("lxc", "lxc"),
    ];
    parts.iter().enumerate().rev().find_map(|(place, part)| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        let (before, id) = part
            .split_at_checked(part.len().checked_sub(64)?)
            .filter(|(_, id)| is_hex(id))?;
        // The monitor process of a container runs outside of it.
        if before.contains("conmon") {
            return None;
        }
        let named = |text: &str| {
            RUNTIMES
                .into_iter()
                .find(|(name, _)| text.contains(name))
                .map(|(_, runtime)| runtime)
        };
        let runtime =
            named(before).or_else(|| parts[..place].iter().rev().find_map(|part| named(part)));
        Some(Origin::Container(
            runtime.unwrap_or("container"),
            id[..12].into(),
        ))
    })
}

/// Matches the last part if it is a systemd service, except services that start programs for users.
fn service(parts: &[&str]) -> Option<Origin> {
    const LAUNCHERS: [&str; 6] = ["user@", "ssh", "systemd-", "docker.", "containerd.", "dbus"];
    let unit = parts.last().filter(|unit| unit.ends_with(".service"))?;
    let is_launcher = LAUNCHERS.iter().any(|name| unit.starts_with(name));
    (!is_launcher).then(|| Origin::Service((*unit).into()))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a91c0d1e2b3a4958677685948372615049382716f5e4d3c2b1a0918273645";

    #[track_caller]
    fn check(cgroup: &str, expected: Option<&str>) {
        let origin = from_cgroup(cgroup.replace("ID", ID).as_bytes());
        assert_eq!(
            origin.as_ref().map(Origin::text),
            expected.map(Text::from),
            "{cgroup}"
        );
    }

    #[test]
    fn a_slurm_job_is_named_by_its_number() {
        check(
            "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n",
            Some("slurm 4711"),
        );
        check(
            "0::/system.slice/node17_slurmstepd.scope/job_4711/step_batch/user/task_special\n",
            Some("slurm 4711"),
        );
        check(
            "9:memory:/slurm/uid_1000/job_4711/step_0/task_0\n0::/system.slice/slurmd.service\n",
            Some("slurm 4711"),
        );
        check(
            "11:devices:/slurm_node17/uid_1000/job_4711/step_extern\n",
            Some("slurm 4711"),
        );
        // A container in a job belongs to the job.
        check(
            "0::/system.slice/slurmstepd.scope/job_4711/step_0/docker-ID.scope\n",
            Some("slurm 4711"),
        );
        check("0::/system.slice/slurmstepd.scope/system\n", None);
        check("0::/slurm/job_x\n", None);
    }

    #[test]
    fn a_slurm_job_without_a_number_is_named_by_its_sluid() {
        let step = "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0\n";
        check(step, Some("slurm s5K1KKYAYG5D00"));
        check(
            "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/docker-ID.scope\n",
            Some("slurm s5K1KKYAYG5D00"),
        );
        // The number, which squeue lists, stays in the environment.
        check_both(step, "SLURM_JOB_ID=4711", Ok("slurm 4711"));
        check(
            "0::/system.slice/slurmstepd.scope/sILOUKKYAYG5D0/step_0\n",
            None,
        );
        check(
            "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D/step_0\n",
            None,
        );
        check("0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00\n", None);
    }

    #[test]
    fn a_container_is_named_by_its_runtime_and_short_id() {
        check(
            "0::/system.slice/docker-ID.scope\n",
            Some("docker 3f2a91c0d1e2"),
        );
        check(
            "12:cpuset:/docker/ID\n0::/docker/ID\n",
            Some("docker 3f2a91c0d1e2"),
        );
        check(
            "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container\n",
            Some("podman 3f2a91c0d1e2"),
        );
        check(
            "0::/machine.slice/libpod-ID.scope\n",
            Some("podman 3f2a91c0d1e2"),
        );
        check("0::/machine.slice/libpod-conmon-ID.scope\n", None);
        check(
            "0::/system.slice/nerdctl-ID.scope\n",
            Some("containerd 3f2a91c0d1e2"),
        );
        check(
            "0::/system.slice/containerd.service/default/cri-containerd-ID\n",
            Some("containerd 3f2a91c0d1e2"),
        );
        check("0::/ecs/5e7b/ID\n", Some("container 3f2a91c0d1e2"));
        check("0::/system.slice/docker.service\n", None);
    }

    #[test]
    fn a_pod_is_named_by_its_id() {
        let uid = "1b2c3d4e-5f60-4a7b-8c9d-0e1f2a3b4c5d";
        check(
            &format!("0::/kubepods/burstable/pod{uid}/ID\n"),
            Some("kubernetes 1b2c3d4e"),
        );
        check(
            &format!("4:memory:/kubepods/besteffort/pod{uid}/ID\n"),
            Some("kubernetes 1b2c3d4e"),
        );
        let slice = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
        check(
            &format!(
                "0::/kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-ID.scope\n"
            ),
            Some("kubernetes 1b2c3d4e"),
        );
        check(
            &format!("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-{slice}/crio-ID.scope\n"),
            Some("kubernetes 1b2c3d4e"),
        );
        check("0::/kubepods.slice\n", None);
    }

    #[test]
    fn tmux_and_services_are_named() {
        check(
            "0::/user.slice/user-1000.slice/user@1000.service/tmux-spawn-5b1f.scope\n",
            Some("tmux"),
        );
        check(
            "0::/system.slice/trainer.service\n",
            Some("trainer.service"),
        );
        check(
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/sweep.service\n",
            Some("sweep.service"),
        );
        check(
            "1:name=systemd:/system.slice/cron.service\n0::/system.slice/cron.service\n",
            Some("cron.service"),
        );
    }

    #[test]
    fn a_login_session_is_no_origin() {
        check("0::/user.slice/user-1000.slice/session-3.scope\n", None);
        check(
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-Terminal.scope\n",
            None,
        );
        check("0::/user.slice/user-1000.slice/user@1000.service\n", None);
        check("0::/system.slice/ssh.service\n", None);
        check("0::/init.scope\n", None);
        check("0::/\n", None);
        check("0::/../../x\n", None);
        check("", None);
        check("no cgroup at all", None);
    }

    #[track_caller]
    fn check_both(cgroup: &str, environ: &str, expected: Reading<&str>) {
        let environment = Ok(Environment::parse(environ.replace(' ', "\0").as_bytes(), 7).origin);
        let group = from_cgroup(cgroup.replace("ID", ID).as_bytes());
        assert_eq!(
            origin(group.as_ref(), &environment),
            expected.map(Text::from),
            "{cgroup} {environ}"
        );
    }

    #[test]
    fn only_variables_that_gputop_uses_leave_the_agent() {
        let environ = b"TOKEN=s3cr3t\0RANK=3\0TMUX=/tmp/tmux-1000\0CROSS_RANK=s3cr3t\0RANKING=s3cr3t\0CUDA_VISIBLE_DEVICES=\0\xff=1";
        assert_eq!(
            Environment::shown_variables(environ),
            ["CROSS_RANK", "CUDA_VISIBLE_DEVICES=", "RANK=3", "TMUX"].map(Text::from)
        );
    }

    #[test]
    fn a_job_comes_before_a_container_and_a_container_before_a_terminal() {
        check_both(
            "0::/\n",
            "PATH=/bin SLURM_JOB_ID=4711 TMUX=/tmp/tmux",
            Ok("slurm 4711"),
        );
        check_both("0::/docker/ID\n", "SLURM_JOB_ID=4711", Ok("slurm 4711"));
        check_both(
            "0::/slurm/uid_1000/job_4712/step_0\n",
            "SLURM_JOB_ID=4711",
            Ok("slurm 4712"),
        );
        check_both(
            "0::/slurm/uid_1000/job_4712/step_0\n",
            "SLURM_JOB_ID=4713",
            Ok("slurm 4712"),
        );
        check_both(
            "0::/docker/ID\n",
            "TMUX=/tmp/tmux-1000/default,1,0",
            Ok("docker 3f2a91c0d1e2"),
        );
        check_both("0::/system.slice/cron.service\n", "STY=1.pts", Ok("screen"));
        check_both(
            "0::/\n",
            "KUBERNETES_SERVICE_HOST=10.0.0.1 HOSTNAME=train-0",
            Ok("kubernetes train-0"),
        );
        check_both(
            "0::/kubepods/pod1b2c3d4e-5f60/ID\n",
            "KUBERNETES_SERVICE_HOST=10.0.0.1 POD_NAME=train-0 HOSTNAME=box",
            Ok("kubernetes train-0"),
        );
        check_both("0::/\n", "TMUX= STY=", Err(Missing::Unsupported));
        assert_eq!(origin(None, &Err(Missing::Denied)), Err(Missing::Denied));
        assert_eq!(
            origin(Some(&Origin::Tmux), &Err(Missing::Denied)),
            Ok("tmux".into())
        );
    }

    #[test]
    fn ranks_are_read_from_the_environment() {
        let environment = Environment::parse(
            b"RANK=3\0LOCAL_RANK=1\0XRANK=9\0TORCHELASTIC_RUN_ID=none\0",
            7,
        );
        assert_eq!(
            (environment.rank, environment.elastic_run),
            (Some("3".into()), Some("none".into()))
        );
        assert_eq!(
            Environment::parse(b"LOCAL_RANK=1\0", 7).rank,
            Some("1".into())
        );
        assert_eq!(
            Environment::parse(b"JPY_PARENT_PID=77\0", 7).notebook_server,
            Some(77)
        );
        assert_eq!(Environment::parse(b"\0=\0RANK", 7), Environment::default());
    }

    #[test]
    fn a_dropped_path_of_the_probe_is_recognized() {
        let setup =
            |environ: &str| Environment::parse(environ.replace(' ', "\0").as_bytes(), 7).probe;
        assert_eq!(
            setup("GPUTOP_PROBE_FOLDER=/p PYTHONPATH=/p:/x"),
            ProbeSetup::OnPath
        );
        assert_eq!(
            setup("PYTHONPATH=/x GPUTOP_PROBE_FOLDER=/p"),
            ProbeSetup::PathDropped
        );
        assert_eq!(setup("GPUTOP_PROBE_FOLDER=/p"), ProbeSetup::PathDropped);
        assert_eq!(setup("PYTHONPATH=/p"), ProbeSetup::Absent);
        assert_eq!(
            setup("GPUTOP_PROBE=0 GPUTOP_PROBE_FOLDER=/p PYTHONPATH=/p"),
            ProbeSetup::TurnedOff
        );
    }

    #[test]
    fn a_launcher_is_known_by_all_its_variables() {
        let launcher =
            |environ: &str| Environment::parse(environ.replace(' ', "\0").as_bytes(), 7).launcher;
        let accelerate =
            "ACCELERATE_USE_CPU=False ACCELERATE_MIXED_PRECISION=bf16 ACCELERATE_DYNAMO_BACKEND=NO";
        assert_eq!(
            launcher(&format!("{accelerate} ACCELERATE_DYNAMO_MODE=default")),
            Some("accelerate".into())
        );
        assert_eq!(launcher(accelerate), None);
        let deepspeed = "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 CROSS_RANK=0 CROSS_SIZE=1";
        assert_eq!(
            launcher(&format!("{deepspeed} LOCAL_SIZE=2")),
            Some("deepspeed".into())
        );
        assert_eq!(launcher(&format!("{deepspeed} LOCAL_WORLD_SIZE=2")), None);
        // Ranks of Slurm, of Open MPI and of Horovod.
        assert_eq!(
            launcher("SLURM_PROCID=1 RANK=1 LOCAL_RANK=1 WORLD_SIZE=2"),
            None
        );
        // The PID of the task itself, and that of one of its ancestors.
        assert_eq!(
            launcher("SLURM_PROCID=1 SLURM_TASK_PID=7"),
            Some("slurm".into())
        );
        assert_eq!(launcher("SLURM_PROCID=1 SLURM_TASK_PID=8"), None);
        assert_eq!(
            launcher("GPUTOP_DEMO_ROLE=Orphan"),
            Some("gputop --demo".into())
        );
        assert_eq!(
            launcher("OMPI_COMM_WORLD_RANK=1 HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1"),
            None
        );
    }
}
