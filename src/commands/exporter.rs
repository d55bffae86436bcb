//! `gputop exporter`: the metrics of hosts for Prometheus.
//!
//! Readings come each second, however often they are scraped.

mod access;
mod address;
mod dcgm;
mod fleet_json;
mod gauges;
mod metrics;
mod passwords;
mod process_groups;
mod sample_values;
mod server;
mod web_config;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::access::AccessFiles;
use self::address::ListenAddress;
use self::fleet_json::FleetJson;
use self::gauges::SeenHost;
use self::metrics::Exposition;
use self::process_groups::ToldApart;
use self::server::{Listener, Scrape, ScrapeKind, Server};
use super::live::end_signals::EndSignals;
use super::live::read_hosts::{Watch, block_on};
use crate::base::text::Text;
use crate::flags::{AgentArgs, HostArgs};
use crate::model::HostModel;
use crate::output::{self, Exit, print_error};
use crate::protocol::host_key::HostKey;
use crate::source::Source;

/// The time from the end of the agent of this host to its next start.
const RESTART_AFTER: Duration = Duration::from_secs(10);

/// A host that has said nothing for this long, or for three of its intervals, has no samples of readings:
/// they would be taken for new ones.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// How long an answer is given to others, too, if no line comes meanwhile.
const ANSWER_LASTS: Duration = Duration::from_secs(1);

/// The scrapes that wait for an answer at one time. Others wait for their turn.
const WAITING_SCRAPES: usize = 32;

/// The options of `gputop exporter`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Debug, Clone, Args)]
pub(crate) struct ExporterArgs {
    #[command(flatten)]
    agent: AgentArgs,

    /// Listen on this address and port, or on a socket file that only you may open: `unix:PATH`. An
    /// address that other computers can reach needs `--web-config`
    #[arg(long, value_name = "ADDRESS", default_value_t)]
    listen: ListenAddress,

    /// Take certificates and passwords from this file, which has the format of `node_exporter`'s web
    /// configuration
    #[arg(long, value_name = "FILE")]
    web_config: Option<PathBuf>,

    /// Tell processes of other users apart by job and program, too: on a loopback address without a
    /// password, everyone on this host can read them
    #[arg(long)]
    share_commands: bool,

    /// Give each process that is told apart samples of its own, with its PID: a new series for each
    /// process that starts
    #[arg(long)]
    pids: bool,

    /// Add metrics of this host with the names of dcgm-exporter. Refused if something listens on its
    /// port, 9400, at the start: two exporters would double each sum
    #[arg(long, conflicts_with = "other_hosts")]
    dcgm_names: bool,

    /// Serve a page at `/` that shows all hosts: free GPUs, who is where, trouble first. It can change
    /// nothing
    #[arg(long)]
    page: bool,

    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

/// How much of the processes is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detail {
    /// Whether each process has samples of its own, with its PID.
    pub pids: bool,
    /// Whether processes of other users than the agent's are told apart by job and program.
    pub other_users: bool,
    /// Whether the metrics of DCGM are added.
    pub dcgm: bool,
}

/// Answers scrapes until SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
///
/// When no source can be started.
pub(crate) fn run(args: &ExporterArgs) -> anyhow::Result<ExitCode> {
    if args.dcgm_names && TcpStream::connect((Ipv4Addr::LOCALHOST, dcgm::PORT)).is_ok() {
        let sentence = format!(
            "--dcgm-names: something listens on port {}, where dcgm-exporter does: the same names from \
             two exporters would double each sum",
            dcgm::PORT
        );
        return Ok(output::refuse(&sentence.into()));
    }
    let files = match AccessFiles::read(args.web_config.as_deref()) {
        Ok(files) => files,
        Err(why) => return Ok(output::refuse(&why.into())),
    };
    block_on(async {
        let (sender, mut scrapes) = mpsc::channel(WAITING_SCRAPES);
        let server = match Server::new(&args.listen, files, args.page, sender) {
            Ok(server) => server,
            Err(why) => return Ok(output::refuse(&why.into())),
        };
        let listener = match Listener::bind(&args.listen).await {
            Ok(listener) => listener,
            Err(why) => return Ok(output::refuse(&why.into())),
        };
        let mut ends = EndSignals::new()?;
        let detail = Detail {
            pids: args.pids,
            other_users: args.share_commands || server.knows_readers(),
            dcgm: args.dcgm_names,
        };
        let mut exporter = Exporter::start(args, detail)?;
        let scheme = if server.has_tls() { "https" } else { "http" };
        print_error(&Text::new(format!(
            "listening on {}; Ctrl-C ends it",
            listener.url(scheme, if args.page { "" } else { "metrics" })
        )));
        let serving = tokio::spawn(server.serve(listener));
        loop {
            let restart = exporter.restart_at;
            tokio::select! {
                () = ends.next() => break,
                event = exporter.watch.next_event() => exporter.note(event),
                Some(Scrape { wanted, reply }) = scrapes.recv() => {
                    // The reader may have gone.
                    let _sent = reply.send(exporter.answer(wanted));
                }
                () = sleep_until(restart.unwrap_or_else(Instant::now)), if restart.is_some() => exporter.restart(),
            }
        }
        serving.abort();
        let _aborted = serving.await;
        exporter.watch.close().await;
        Ok(Exit::Success.into())
    })
}

/// The hosts, and what was answered last.
struct Exporter {
    watch: Watch,
    /// The name of this host, before its first line.
    name_here: String,
    detail: Detail,
    interval: Duration,
    /// The last line of each host: its number, and when it came.
    heard: BTreeMap<HostKey, (u64, Instant)>,
    /// Why no lines come from some hosts, as it was printed.
    reasons: BTreeMap<HostKey, Text>,
    /// When sources that have ended are started again.
    restart_at: Option<Instant>,
    /// The answers since the last line, for others who ask before the next one.
    answers: BTreeMap<ScrapeKind, (Instant, Bytes)>,
    /// The groups of processes in the last scrape, of each host that had samples of readings.
    told_apart: BTreeMap<HostKey, ToldApart>,
}

impl Exporter {
    fn start(args: &ExporterArgs, detail: Detail) -> anyhow::Result<Self> {
        let mut sources = args.hosts.sources(&args.agent, args.agent.given_interval());
        for source in &mut sources {
            if let Source::LocalAgent(agent) = source {
                agent.shares_lines = true;
            }
        }
        Ok(Self {
            watch: Watch::start(sources)?,
            name_here: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            detail,
            interval: args
                .agent
                .given_interval()
                .unwrap_or_else(|| args.hosts.usual_interval()),
            heard: BTreeMap::new(),
            reasons: BTreeMap::new(),
            restart_at: None,
            answers: BTreeMap::new(),
            told_apart: BTreeMap::new(),
        })
    }

    /// Notes that an event was taken in: a line of this host, or another event.
    fn note(&mut self, line_of: Option<HostKey>) {
        self.answers.clear();
        // Nothing was asked.
        self.watch.take_replies();
        if let Some(host) = line_of {
            let latest = self.watch.model(host).and_then(HostModel::latest);
            let sequence = latest.map(|latest| latest.sequence);
            let heard = self.heard.get(&host).map(|(sequence, _)| *sequence);
            if let Some(sequence) = sequence.filter(|_| sequence != heard) {
                self.heard.insert(host, (sequence, Instant::now()));
                self.reasons.remove(&host);
            }
            return;
        }
        let ended: Vec<(HostKey, Text)> = self
            .watch
            .host_keys()
            .filter_map(|host| Some((host, self.watch.ended(host)?.clone())))
            .collect();
        for (host, reason) in ended {
            // A host that is down for days says so once.
            if self.reasons.get(&host) != Some(&reason) {
                let name = self.watch.name(host);
                print_error(&Text::new(format!("{name}: {reason}; trying again")));
                self.reasons.insert(host, reason);
            }
            self.restart_at
                .get_or_insert_with(|| Instant::now() + RESTART_AFTER);
        }
    }

    fn restart(&mut self) {
        self.restart_at = None;
        self.watch.restart_ended(self.interval);
    }

    fn answer(&mut self, wanted: ScrapeKind) -> Bytes {
        if let Some((made, text)) = self.answers.get(&wanted)
            && made.elapsed() < ANSWER_LASTS
        {
            return text.clone();
        }
        let text = Bytes::from(match wanted {
            ScrapeKind::Metrics(format) => self.metrics().text(format),
            ScrapeKind::Fleet => self.fleet(),
        });
        self.answers.insert(wanted, (Instant::now(), text.clone()));
        text
    }

    fn hosts(&self) -> impl Iterator<Item = (HostKey, SeenHost<'_>)> {
        self.watch.host_keys().map(|key| {
            let since_line = self.heard.get(&key).map(|(_, at)| at.elapsed());
            let is_heard = |model: &&HostModel| {
                let interval = model.latest().map_or(0, |latest| latest.interval_ms);
                let silent_after =
                    SILENT_AFTER.max(Duration::from_millis(interval.saturating_mul(3)));
                since_line.is_some_and(|since| since < silent_after)
            };
            let model = self.watch.model(key).filter(is_heard);
            let mut sources = self.watch.sources.hosts();
            let is_here =
                sources.any(|(of, source)| of == key && matches!(source, Source::LocalAgent(_)));
            let seen = SeenHost {
                name: match self.watch.name(key) {
                    _ if is_here && model.is_none() => &self.name_here,
                    name => name,
                },
                model,
                since_line,
            };
            (key, seen)
        })
    }

    fn metrics(&mut self) -> Exposition {
        let mut out = Exposition::new();
        let (mut before, mut told_apart) = (std::mem::take(&mut self.told_apart), BTreeMap::new());
        for (key, host) in self.hosts() {
            gauges::add_host(&mut out, &host);
            let Some((model, snapshot)) =
                host.model.and_then(|model| Some((model, model.latest()?)))
            else {
                continue;
            };
            let mut told = before.remove(&key).unwrap_or_default();
            process_groups::add_host(&mut out, model, snapshot, host.name, self.detail, &mut told);
            told_apart.insert(key, told);
            if self.detail.dcgm {
                dcgm::add_host(&mut out, host.name, model, snapshot);
            }
        }
        self.told_apart = told_apart;
        out
    }

    fn fleet(&self) -> String {
        let mut fleet = FleetJson::default();
        for (_, host) in self.hosts() {
            fleet.add(&host);
        }
        // All its keys are texts, so that it cannot fail.
        serde_json::to_string(&fleet).unwrap_or_default()
    }
}
