//! Events, which the app takes in, and effects, which it asks the session to perform.

use crossterm::event::{KeyEvent, MouseEvent};

use crate::base::terminal::Background;
use crate::base::text::Text;
use crate::base::time::{ViewerClock, ViewerTime};
use crate::model::{HostLabel, OutlinePart, Past};
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::command::Command;
use crate::protocol::connection_state::ConnectionState;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::{PlayerCommand, PlayerReport};
use crate::protocol::recorder_report::RecorderReport;
use crate::protocol::slurm_job::{SlurmCancel, SlurmCancelAnswer, SlurmJob};

/// Everything that can happen to the app.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A host joins the fleet, or gets another display name.
    Host(HostKey, HostLabel),
    /// A line arrived from this host.
    Line(HostKey, Box<Line>),
    /// The past of this host was read from a file.
    Past(HostKey, Box<Past>),
    /// A recorder on this host tells what it knows.
    RecorderPast(HostKey, Box<Checkpoint>),
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse was clicked, or its wheel turned.
    Mouse(MouseEvent),
    /// The terminal has this size now, in columns and rows.
    Resized(u16, u16),
    /// The background of the terminal is known.
    Background(Background),
    /// This much time passed since the previous tick. The app has no other clock.
    Tick(ViewerTime),
    /// The viewer's wall clock shows this now, and goes on with the ticks. Never in a replay.
    Clock(ViewerClock),
    /// The result of an effect, in one sentence.
    Done(Text),
    /// Slurm has answered for the job of `--slurm`; or why it has not, in one sentence.
    Slurm(Result<SlurmJob, Text>),
    /// The command of a host wrote this line to its standard error, and runs on.
    Said(HostKey, Text),
    /// The process that writes a recording of this viewer reports its state.
    Recorder(RecorderReport),
    /// The recording has ended; with the problem if it could not be read to its end.
    RecordingEnded(Option<Text>),
    /// The player of a recording reports its progress.
    Player(PlayerReport),
    /// A part of the outline of the recording.
    Outline(OutlinePart),
    /// The connection to this other host has this state now.
    Connection(HostKey, ConnectionState),
    /// Slurm has said whether the user may cancel the job of the dialog, or has cancelled it.
    SlurmCancel(SlurmCancelAnswer),
    /// The user has answered the questions of ssh about this host, or not.
    LoggedIn(HostKey, bool),
    /// No more lines come from this host; the text says why, in one sentence.
    SourceLost(HostKey, Text),
}

/// Everything the app can ask the session to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send each command to the agent of its host, in this order. The replies come back as lines.
    Commands(Vec<(HostKey, Command)>),
    /// Send each command to the player of the recording, in this order.
    Play(Vec<PlayerCommand>),
    /// Notify the user outside of the screen too.
    Alert(Vec<Alert>),
    /// Start the sources of these hosts again: they are lost or silent.
    Reconnect(Vec<HostKey>),
    /// Ask Slurm again for the job of `--slurm`, and perform this effect.
    AskSlurm(Box<Self>),
    /// Log in to this host with ssh on the terminal, which can ask for a password there, and connect
    /// it again.
    LogIn(HostKey),
    /// Ask Slurm whether the user may cancel a job from a dialog with these hosts, and perform this
    /// effect.
    AskToCancel(SlurmCancel, Box<Self>),
    /// Ask Slurm that again, and cancel the job if the user may.
    CancelSlurmJob(SlurmCancel),
    /// Ask the terminal to put this text into its clipboard.
    Copy(String),
    /// Save the screen as a picture, and the series of its graph, into files.
    SaveScreen,
    /// Write the settings to the configuration file.
    SaveSettings,
    /// Record what the viewer receives to a new file.
    StartRecording,
    /// Close the recording.
    StopRecording,
    /// Stop and give the terminal back to the shell until `fg` (Ctrl-Z).
    Suspend,
    /// Quit gputop.
    Quit,
}

/// Something that the user wants to know at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// The kind of alert.
    pub kind: AlertKind,
    /// A sentence for people.
    pub sentence: String,
    /// Facts for programs: names in capitals, and values. Unknown facts are left out.
    pub facts: Vec<(&'static str, String)>,
}

/// The kind of an alert. Its text in `snake_case` is for programs and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AlertKind {
    /// A process or GPU began to leak memory.
    Leak,
    /// A leak that was told, or other growth, is over.
    LeakOver,
    /// Memory is full soon: a leak within the warning time, other growth within 15 minutes.
    OutOfMemorySoon,
    /// PyTorch ran out of memory in a process.
    OutOfMemory,
    /// A GPU that was in use is free.
    GpuFree,
    /// A process has ended, or all processes of a job.
    ProcessEnded,
    /// A process, left behind by its job, holds memory.
    Orphan,
    /// A GPU is lost, hung or in need of a reset.
    GpuLost,
    /// It answers again.
    GpuAnswers,
    /// An Xid error of the hardware.
    Xid,
    /// No more data comes from a host.
    HostLost,
    /// Data comes again.
    HostAnswers,
    /// A process holds memory and has not computed for long.
    Idle,
    /// It computes again.
    IdleOver,
}
