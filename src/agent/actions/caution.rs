//! Why to think twice before ending a process: one sentence each. It forbids nothing.
//!
//! A name proves nothing, and any process may choose its own; but who ends `Xorg` by mistake has lost a
//! day's work, and who is asked once too often a second.

use super::refusal::Owner;
use crate::base::text::Text;
use crate::protocol::reply::SUGGESTION;

/// The consequences of ending a process of that name. The kernel keeps 15 bytes of a name; here they stand whole.
const INFRASTRUCTURE: &[(&[&str], &str)] = &[
    (
        &[
            "Xorg",
            "X",
            "Xwayland",
            "gnome-shell",
            "mutter",
            "kwin_x11",
            "kwin_wayland",
            "cinnamon",
            "sway",
            "Hyprland",
            "weston",
            "wayfire",
            "labwc",
            "niri",
            "cosmic-comp",
            "gamescope",
            "gdm",
            "gdm3",
            "sddm",
            "lightdm",
        ],
        "it draws a desktop: every window on it would close",
    ),
    (&["nvidia-persistenced"], "it keeps the driver's state: GPUs would lose their settings"),
    (
        &["nv-fabricmanager", "nvidia-fabricmanager"],
        "it runs the NVSwitch fabric: no GPU of this host could start CUDA",
    ),
    (&["nv-hostengine", "dcgm-exporter"], "it is DCGM: the monitoring of this host would go blind"),
    (
        &["nvidia-cuda-mps-server", "nvidia-cuda-mps-control"],
        "it shares GPUs through MPS: every process that uses them through it would fail",
    ),
    (&["slurmstepd"], "it is Slurm's keeper of a job step: Slurm would lose track of the job"),
    (&["slurmd"], "it is Slurm's keeper of this host: Slurm would take the host for dead"),
    (&["containerd-shim", "containerd-shim-runc-v2", "conmon"], "it is the keeper of a container, which would be lost"),
    (&["containerd", "dockerd", "crio"], "it runs the containers of this host"),
    (&["kubelet", "k3s-server", "k3s-agent"], "it is Kubernetes' keeper of this host: its pods would move away"),
    (&["raylet", "gcs_server"], "it is Ray's keeper of this host: all of Ray's workers here would end"),
    (&["systemd", "(sd-pam)", "systemd-logind"], "it is systemd: whatever it started would end"),
    (&["sshd", "sshd-session"], "it carries an ssh connection: whatever runs in that would lose its terminal"),
    (&["tmux: server", "SCREEN"], "it holds the windows of tmux or screen: everything in them would end"),
];

/// The longest name that the kernel keeps.
const LONGEST_NAME: usize = 15;

/// The properties of the asking user that matter here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requester {
    /// The user that the agent runs as.
    pub(super) uid: u32,
    /// The person who became root by sudo.
    pub(super) sudo: Option<u32>,
}

impl Requester {
    /// As it is now.
    pub(super) fn now() -> Self {
        let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        Self { uid: rustix::process::geteuid().as_raw(), sudo }
    }

    /// Whether only root's rights let this one signal processes of that user.
    fn needs_root_for(self, owner: u32) -> bool {
        self.uid == 0 && owner != 0 && self.sudo != Some(owner)
    }
}

/// Why to think twice about a process of that name, owner and origin; absent when there is no such reason.
///
/// Advice alone (see [`crate::protocol::reply::is_advice`]) is no reason to.
pub(super) fn about(comm: &Text, owner: Option<&Owner>, origin: Option<&str>, asker: Requester) -> Option<Text> {
    let infrastructure = INFRASTRUCTURE.iter().find(|(names, _)| names.iter().any(|name| is_named(comm, name)));
    let infrastructure = infrastructure.map(|(_, why)| (*why).to_owned());
    let stranger = owner.filter(|it| asker.needs_root_for(it.uid)).map(|it| format!("it belongs to {}", it.name()));
    // A step is ended by its step daemon, and a job by Slurm: else its files and its share of the host stay taken.
    let job = origin.and_then(|it| it.strip_prefix("slurm ")).map(|job| format!("{SUGGESTION}{job} ends it cleanly"));
    let reasons: Vec<String> = infrastructure.into_iter().chain(stranger).chain(job).collect();
    (!reasons.is_empty()).then(|| reasons.join("; ").into())
}

fn is_named(comm: &Text, name: &str) -> bool {
    comm.as_str() == name.get(..LONGEST_NAME).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::is_advice;

    const ROOT: Requester = Requester { uid: 0, sudo: None };

    #[track_caller]
    fn check(comm: &str, owner: u32, origin: &str, asker: Requester, expected: Option<&str>) {
        let owner = Owner { uid: owner };
        let caution = about(&comm.into(), Some(&owner), Some(origin), asker);
        assert_eq!(caution.as_ref().map(Text::as_str), expected);
    }

    #[test]
    fn a_training_process_of_one_s_own_needs_no_caution() {
        check("python", 4_000_001, "tmux", Requester { uid: 4_000_001, sudo: None }, None);
        check("python", 0, "", ROOT, None);
    }

    #[test]
    fn what_others_stand_on_is_named_although_the_kernel_cuts_names() {
        let fabric = Some("it runs the NVSwitch fabric: no GPU of this host could start CUDA");
        check("nv-fabricmanage", 0, "", ROOT, fabric);
        check("nvidia-persiste", 0, "", ROOT, Some("it keeps the driver's state: GPUs would lose their settings"));
        check("Xorg", 0, "", ROOT, Some("it draws a desktop: every window on it would close"));
        check("Xorg-like", 0, "", ROOT, None);
    }

    #[test]
    fn root_is_told_whose_it_is_unless_it_is_the_person_s_own() {
        check("python", 4_000_001, "", ROOT, Some("it belongs to uid 4000001"));
        check("python", 4_000_001, "", Requester { sudo: Some(4_000_001), ..ROOT }, None);
        check("python", 4_000_001, "", Requester { uid: 1000, sudo: None }, None);
    }

    #[test]
    fn a_job_of_slurm_suggests_scancel_which_alone_is_only_advice() {
        let advice = "scancel 4711 ends it cleanly";
        check("python", 0, "slurm 4711", ROOT, Some(advice));
        assert!(is_advice(&advice.into()));
        let grave = "it belongs to uid 4000001; scancel 4711 ends it cleanly";
        check("python", 4_000_001, "slurm 4711", ROOT, Some(grave));
        assert!(!is_advice(&grave.into()));
    }
}
