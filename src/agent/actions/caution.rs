//! Why to think twice before ending a process. A caution forbids nothing.
//!
//! A name proves nothing, since any process may choose its own. But ending `Xorg` by mistake costs
//! a day's work, and a needless question costs a second.

use super::refusal::user_name;
use crate::base::text::Text;
use crate::protocol::reply::SUGGESTION;

/// Names of processes, separated by commas, and the consequence of ending one of them.
const INFRASTRUCTURE: [(&str, &str); 14] = [
    (
        "Xorg,X,Xwayland,gnome-shell,mutter,kwin_x11,kwin_wayland,cinnamon,sway,Hyprland,weston,wayfire,labwc,niri,\
         cosmic-comp,gamescope,gdm,gdm3,sddm,lightdm",
        "it draws a desktop: every window on it would close",
    ),
    (
        "nvidia-persistenced",
        "it keeps the driver's state: GPUs would lose their settings",
    ),
    (
        "nv-fabricmanager,nvidia-fabricmanager",
        "it runs the NVSwitch fabric: no GPU of this host could start CUDA",
    ),
    (
        "nv-hostengine,dcgm-exporter",
        "it is DCGM: the monitoring of this host would go blind",
    ),
    (
        "nvidia-cuda-mps-server,nvidia-cuda-mps-control",
        "it shares GPUs through MPS: every process that uses them through it would fail",
    ),
    (
        "slurmstepd",
        "it is Slurm's step daemon: Slurm would lose track of the job",
    ),
    (
        "slurmd",
        "it is Slurm's node daemon: Slurm would mark this host as down",
    ),
    (
        "containerd-shim,containerd-shim-runc-v2,conmon",
        "it monitors a container, which would be lost",
    ),
    (
        "containerd,dockerd,crio",
        "it runs the containers of this host",
    ),
    (
        "kubelet,k3s-server,k3s-agent",
        "it is Kubernetes' node agent: the pods of this host would move away",
    ),
    (
        "raylet,gcs_server",
        "it is Ray's node manager: all of Ray's workers here would end",
    ),
    (
        "systemd,(sd-pam),systemd-logind",
        "it is systemd: whatever it started would end",
    ),
    (
        "sshd,sshd-session",
        "it carries an ssh connection: whatever runs in that would lose its terminal",
    ),
    (
        "tmux: server,SCREEN",
        "it holds the windows of tmux or screen: everything in them would end",
    ),
];

/// The kernel cuts the name of a process to this many bytes.
const LONGEST_NAME: usize = 15;

#[derive(Debug, Clone, Copy)]
pub(super) struct Requester {
    /// The user that the agent runs as.
    pub(super) uid: u32,
    /// The user who became root through sudo. `None` without sudo.
    pub(super) sudo: Option<u32>,
}

impl Requester {
    pub(super) fn current() -> Self {
        let sudo = std::env::var("SUDO_UID")
            .ok()
            .and_then(|uid| uid.parse().ok());
        Self {
            uid: rustix::process::geteuid().as_raw(),
            sudo,
        }
    }
}

/// Returns why to think twice about ending a process with this name, owner and origin: one
/// sentence. `None` when there is no reason. For a Slurm job without other reasons, the sentence
/// [is advice](crate::protocol::reply::is_advice).
pub(super) fn caution(
    comm: &str,
    owner: Option<u32>,
    origin: Option<&str>,
    requester: Requester,
) -> Option<Text> {
    let is_named = |name: &str| comm == name.get(..LONGEST_NAME).unwrap_or(name);
    let infrastructure = INFRASTRUCTURE
        .iter()
        .find(|(names, _)| names.split(',').any(is_named));
    // Only root can signal the processes of other users.
    let stranger =
        owner.filter(|owner| requester.uid == 0 && *owner != 0 && requester.sudo != Some(*owner));
    // Slurm ends a job cleanly. Signals alone leave the files of the job and its share of the host
    // taken.
    let job = origin.and_then(|origin| origin.strip_prefix("slurm "));
    let reasons = [
        infrastructure.map(|(_, consequence)| (*consequence).to_owned()),
        stranger.map(|owner| format!("it belongs to {}", user_name(owner))),
        job.map(|job| format!("{SUGGESTION}{job} ends it cleanly")),
    ];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    (!reasons.is_empty()).then(|| reasons.join("; ").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::is_advice;

    const ROOT: Requester = Requester { uid: 0, sudo: None };

    #[track_caller]
    fn check(comm: &str, owner: u32, origin: &str, requester: Requester, expected: Option<&str>) {
        let caution = caution(comm, Some(owner), Some(origin), requester);
        assert_eq!(caution.as_ref().map(Text::as_str), expected);
    }

    #[test]
    fn a_training_process_of_the_requester_needs_no_caution() {
        check(
            "python",
            4_000_001,
            "tmux",
            Requester {
                uid: 4_000_001,
                sudo: None,
            },
            None,
        );
        check("python", 0, "", ROOT, None);
    }

    #[test]
    fn infrastructure_is_recognized_by_names_that_the_kernel_cut() {
        let fabric = Some("it runs the NVSwitch fabric: no GPU of this host could start CUDA");
        check("nv-fabricmanage", 0, "", ROOT, fabric);
        check(
            "nvidia-persiste",
            0,
            "",
            ROOT,
            Some("it keeps the driver's state: GPUs would lose their settings"),
        );
        check(
            "Xorg",
            0,
            "",
            ROOT,
            Some("it draws a desktop: every window on it would close"),
        );
        check("Xorg-like", 0, "", ROOT, None);
    }

    #[test]
    fn root_learns_the_owner_unless_it_became_root_from_that_user() {
        check(
            "python",
            4_000_001,
            "",
            ROOT,
            Some("it belongs to uid 4000001"),
        );
        check(
            "python",
            4_000_001,
            "",
            Requester {
                sudo: Some(4_000_001),
                ..ROOT
            },
            None,
        );
        check(
            "python",
            4_000_001,
            "",
            Requester {
                uid: 1000,
                sudo: None,
            },
            None,
        );
    }

    #[test]
    fn scancel_alone_is_only_advice() {
        let advice = "scancel 4711 ends it cleanly";
        check("python", 0, "slurm 4711", ROOT, Some(advice));
        assert!(is_advice(&advice.into()));
        let grave = "it belongs to uid 4000001; scancel 4711 ends it cleanly";
        check("python", 4_000_001, "slurm 4711", ROOT, Some(grave));
        assert!(!is_advice(&grave.into()));
    }
}
