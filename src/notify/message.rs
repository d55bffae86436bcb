//! A message: one event that is told to people and programs away from the screen.

use crate::base::text::Text;

/// How urgent a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Work is being lost, or will be soon.
    Urgent,
    /// Trouble.
    Warning,
    /// News that is no trouble.
    Info,
}

/// The kinds of messages, as filters and programs name them, and how urgent they are. A kind never
/// changes its name.
pub(crate) const KINDS: &[(&str, Urgency)] = &[
    ("leak", Urgency::Warning),
    ("leak_over", Urgency::Info),
    ("out_of_memory_soon", Urgency::Urgent),
    ("out_of_memory", Urgency::Urgent),
    ("process_ended", Urgency::Info),
    ("orphan", Urgency::Warning),
    ("gpu_free", Urgency::Info),
    ("gpu_lost", Urgency::Urgent),
    ("gpu_answers", Urgency::Info),
    ("xid", Urgency::Urgent),
    ("host_lost", Urgency::Warning),
    ("host_answers", Urgency::Info),
    ("idle", Urgency::Warning),
    ("idle_over", Urgency::Info),
    (TEST_KIND, Urgency::Info),
];

/// The kind of the message that `gputop notify` sends.
const TEST_KIND: &str = "test";

/// Whether a message says that something began, ended, or happened once. Its text in `snake_case`
/// is for programs and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Phase {
    /// Something began, whose end is another message.
    Begins,
    /// Something ended, whose beginning was another message.
    Ends,
    /// Something happened.
    Once,
}

/// One event for people and programs away from the screen.
///
/// Notification services get the kind, the sentence, the host, the GPU and the job, and the command
/// line only on request. Programs of `--on-alert` run on this host, and get everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// One of [`KINDS`].
    pub(crate) kind: &'static str,
    pub(crate) phase: Phase,
    /// A sentence for people.
    pub(crate) sentence: String,
    /// The name of the host.
    pub(crate) host: String,
    /// The GPU or the GPUs as people read it, such as `0` or `0, 1`.
    pub(crate) gpu: Option<String>,
    /// The index and the UUID of the GPU: filters name it by either.
    pub(crate) gpu_ids: Vec<String>,
    /// The job, such as `train.py` or `train.py (slurm 4711)`.
    pub(crate) job: Option<String>,
    /// The name of the job, the text of its origin, and the ID in that: filters name it by any.
    pub(crate) job_ids: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) pid: Option<u32>,
    /// The command line with masked secrets.
    pub(crate) command: Option<String>,
    /// More facts for programs of `--on-alert`: names in capitals, and values.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl Message {
    /// Returns a message that only tries a notification.
    pub(crate) fn test(host: String, sentence: String) -> Self {
        Self::of_host(TEST_KIND, Phase::Once, host, sentence)
    }

    /// Returns a message about a host, and about nothing on it.
    pub(crate) fn of_host(
        kind: &'static str,
        phase: Phase,
        host: String,
        sentence: String,
    ) -> Self {
        Self {
            kind,
            phase,
            sentence,
            host,
            gpu: None,
            gpu_ids: Vec::new(),
            job: None,
            job_ids: Vec::new(),
            user: None,
            pid: None,
            command: None,
            facts: Vec::new(),
        }
    }

    /// Returns how urgent the message is.
    pub(super) fn urgency(&self) -> Urgency {
        let row = KINDS.iter().find(|(kind, _)| *kind == self.kind);
        row.map_or(Urgency::Warning, |(_, urgency)| *urgency)
    }

    /// Returns the title: the kind in words, and the host.
    pub(super) fn title(&self) -> String {
        format!("gputop: {} on {}", self.kind.replace('_', " "), self.host)
    }

    /// Returns the named facts that a service gets, without the kind and the sentence.
    pub(super) fn sent_facts(&self, has_command: bool) -> Vec<(&'static str, Text)> {
        let command = self.command.as_ref().filter(|_| has_command);
        [
            ("host", Some(&self.host)),
            ("GPU", self.gpu.as_ref()),
            ("job", self.job.as_ref()),
            ("command", command),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, Text::new(value?))))
        .collect()
    }

    /// Returns all facts for a program of `--on-alert`.
    pub(super) fn all_facts(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("HOST", Some(self.host.clone())),
            ("GPU", self.gpu.clone()),
            ("JOB", self.job.clone()),
            ("USER", self.user.clone()),
            ("PID", self.pid.map(|pid| pid.to_string())),
            ("COMMAND", self.command.clone()),
            ("PHASE", Some(<&'static str>::from(self.phase).to_owned())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .chain(self.facts.iter().cloned())
    }
}
