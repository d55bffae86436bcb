//! Hosts over ssh that have no gputop: a copy of this program is put there if that is allowed, and
//! `nvidia-smi` stands in otherwise.
//!
//! Nothing is written to a host before its row has said what will be written. Hosts that lack gputop
//! are collected for a moment, so that the first sentence names how many they are.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::host_source::{HostSource, OnHost};
use super::opening::HostWithoutGputop;
use super::ssh::first_contact::GlibcVersion;
use super::ssh::own_program::OwnProgram;
use super::ssh::upload::{UploadLimit, announcement, upload};
use super::ssh::{SshHost, UsedMaster};
use super::{Source, SourceEvent, Sources, key};
use crate::base::text::Text;
use crate::protocol::connection_state::ConnectionState;

/// How long hosts that lack gputop are collected.
const COLLECTING: Duration = Duration::from_secs(1);

/// How long the user can read a sentence before it comes true.
const NOTICE: Duration = Duration::from_secs(3);

/// A host that lacks gputop.
#[derive(Debug)]
struct LackingHost {
    place: usize,
    host: SshHost,
    master: UsedMaster,
    folder: Text,
}

/// The copies that are made, and those that are about to be made.
#[derive(Debug, Default)]
pub(super) struct HostCopies {
    program: Option<Arc<OwnProgram>>,
    limit: Arc<UploadLimit>,
    collected: Vec<LackingHost>,
    /// When the hosts were told enough; `None` without a host.
    announced_at: Option<Instant>,
    announced: Vec<LackingHost>,
    begins_at: Option<Instant>,
    uploads: JoinSet<(usize, Result<Text, String>)>,
}

impl HostCopies {
    /// Sets this program, once it was read.
    pub(super) fn set_program(&mut self, program: Option<Arc<OwnProgram>>) {
        self.program = self.program.take().or(program);
    }

    /// The name of a copy, in which the version comes before the hash; `None` while this program was
    /// not read.
    pub(super) fn copy_name(&self) -> Option<String> {
        self.program.as_ref().map(|program| program.copy_name())
    }

    /// Plans a copy for a host that has answered that it lacks gputop.
    ///
    /// # Errors
    ///
    /// When it gets none: a sentence.
    pub(super) fn plan(
        &mut self,
        place: usize,
        host: &SshHost,
        master: UsedMaster,
        answer: &HostWithoutGputop,
        now: Instant,
    ) -> Result<(), String> {
        if !host.may_get_copy() {
            return Err("no gputop there".to_owned());
        }
        let program = self
            .program
            .as_ref()
            .ok_or("no gputop there, and the file of this one cannot be read")?;
        let glibc = answer.glibc.as_ref();
        let glibc = glibc.and_then(|version| GlibcVersion::parse(version.as_str()));
        program.check_runs_on(answer.system.as_str(), glibc)?;
        self.collected.push(LackingHost {
            place,
            host: host.clone(),
            master,
            folder: answer.folder.clone(),
        });
        self.announced_at.get_or_insert(now + COLLECTING);
        Ok(())
    }

    /// When [`Self::advance`] has something to do; `None` for never.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.announced_at, self.begins_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Begins the uploads that are due. Returns what the rows of hosts are to say first, each with the
    /// place of its host.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<(usize, Text)> {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if is_due(self.begins_at) {
            self.begins_at = None;
            for lacking in std::mem::take(&mut self.announced) {
                self.begin(lacking);
            }
        }
        let Some(program) = self.program.as_ref().filter(|_| is_due(self.announced_at)) else {
            return Vec::new();
        };
        self.announced_at = None;
        self.begins_at.get_or_insert(now + NOTICE);
        let hosts = self.collected.len();
        let notes = self.collected.iter().map(|lacking| {
            let sentence = announcement(program, &lacking.folder, hosts);
            (lacking.place, Text::new(sentence))
        });
        let notes = notes.collect();
        self.announced.append(&mut self.collected);
        notes
    }

    fn begin(&mut self, lacking: LackingHost) {
        let Some(program) = self.program.clone() else {
            return;
        };
        let limit = Arc::clone(&self.limit);
        self.uploads.spawn(async move {
            let shell = lacking.host.shell(&lacking.master, true);
            let path = upload(shell, program, lacking.host.upload_folders(), &limit).await;
            (lacking.place, path)
        });
    }

    /// Leaves out a host whose copy was not begun yet.
    pub(super) fn forget(&mut self, place: usize) {
        for list in [&mut self.collected, &mut self.announced] {
            list.retain(|lacking| lacking.place != place);
        }
    }

    /// Waits for the end of an upload: the place of its host, and the path of the copy there or the
    /// reason why there is none. Without an upload, waits for ever. Safe to cancel.
    pub(super) async fn finished(&mut self) -> (usize, Result<Text, String>) {
        match self.uploads.join_next().await {
            Some(Ok(finished)) => finished,
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

impl Sources {
    /// Plans a copy for a host without gputop, or connects it again for the output of `nvidia-smi`.
    /// Returns the reason if neither is possible.
    pub(super) fn help_without_gputop(
        &mut self,
        place: usize,
        answer: &HostWithoutGputop,
    ) -> Option<String> {
        let now = Instant::now();
        let master = self.list.get(place).map(HostSource::master);
        let (
            Some(master),
            Some(HostSource {
                source: Source::Ssh(ssh),
                on_host,
                ..
            }),
        ) = (master, self.list.get_mut(place))
        else {
            return Some("no gputop there".to_owned());
        };
        let reason = if *on_host == OnHost::Unknown {
            match self.copies.plan(place, ssh, master, answer, now) {
                Ok(()) => {
                    *on_host = OnHost::Copying;
                    self.schedule.let_in(place, now);
                    self.tell(place, ConnectionState::Copying);
                    return None;
                }
                Err(reason) => reason,
            }
        } else {
            "no gputop there".to_owned()
        };
        // A second answer without gputop, although it was copied or `nvidia-smi` was asked for.
        let was_asked = *on_host == OnHost::Absent;
        *on_host = OnHost::Absent;
        if was_asked || !answer.has_nvidia_smi {
            return Some(reason);
        }
        self.fall_back(place, &reason);
        None
    }

    /// Connects a host for the output of `nvidia-smi`.
    fn fall_back(&mut self, place: usize, reason: &str) {
        let note = format!("nvidia-smi only, without processes: {reason}");
        self.pending
            .push_back(SourceEvent::Note(key(place), Text::new(note)));
        self.begin(place);
    }

    /// Connects a host to which this program was copied, or was not for a reason.
    pub(super) fn copied(&mut self, place: usize, copy: Result<Text, String>) {
        let Some(host) = self.list.get_mut(place) else {
            return;
        };
        // The user may have asked for another try meanwhile.
        if host.on_host != OnHost::Copying {
            return;
        }
        match copy {
            Ok(_) => self.begin(place),
            Err(reason) => {
                host.on_host = OnHost::Absent;
                self.fall_back(place, &reason);
            }
        }
    }
}
