//! The first command on another host, and the line by which it answers.
//!
//! The command is `assets/remote/first-contact.sh`. It prints one line, the marker, and then becomes the
//! agent, `nvidia-smi`, or nothing. Lines before the marker come from the files that a shell reads
//! when it starts, and are skipped. A random nonce tells the marker from them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use super::script;
use crate::base::text::Text;
use crate::protocol::agent_options::{AgentOptions, SimulatedMachine};

/// The request to a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContactRequest<'a> {
    /// The options of the agent. A library for NVML is a file of this host, so it is left out.
    pub(crate) agent: &'a AgentOptions,
    /// The version and the hash of the copy of this program that may have been uploaded earlier, as
    /// in `0.1.0-HASH`; `None` to start no copy.
    pub(crate) uploaded: Option<&'a str>,
    /// The fields to ask `nvidia-smi` for where there is no gputop; `None` to leave it alone.
    pub(crate) gpu_fields: Option<&'a str>,
}

/// The answer of a host: the marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FirstContact {
    /// The kernel and the machine, as `uname -sm` prints them: `Linux x86_64`.
    pub(crate) system: Text,
    /// The version of glibc; `None` where there is another C library.
    pub(crate) glibc: Option<GlibcVersion>,
    /// The program that the command becomes.
    pub(crate) found: Found,
}

/// The program that writes the lines after the marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// An agent.
    Gputop {
        /// The path of the program.
        path: Text,
        /// The output of its `--version`, such as `gputop 0.1.0`.
        version: Text,
    },
    /// `nvidia-smi`, which repeats one line for each GPU.
    NvidiaSmi,
    /// No program: the output ends.
    Nothing {
        /// Whether `nvidia-smi` is there.
        has_nvidia_smi: bool,
        /// The user's own folder for copies of gputop, which may not exist.
        folder: Text,
    },
}

/// A version of glibc, such as 2.17.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GlibcVersion {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl GlibcVersion {
    /// Finds the version at the end of a line such as `glibc 2.36` or `ldd (GNU libc) 2.17`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (major, minor) = line.rsplit(' ').next()?.split_once('.')?;
        // A build between two versions has a third part.
        let minor = minor.split('.').next()?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl fmt::Display for GlibcVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns a nonce for one connection.
pub(crate) fn new_nonce() -> String {
    // The keys of each state are random.
    let number = || RandomState::new().hash_one(0_u8);
    format!("{:016x}{:016x}", number(), number())
}

/// Returns the arguments of the script on a host.
pub(crate) fn contact_words(nonce: &str, request: &ContactRequest<'_>) -> Vec<String> {
    let seconds = request.agent.interval.as_secs().max(1).to_string();
    let mut words = [
        nonce,
        request.uploaded.unwrap_or_default(),
        request.gpu_fields.unwrap_or_default(),
        &seconds,
    ]
    .map(str::to_owned)
    .to_vec();
    words.extend(agent_arguments(request.agent));
    words
}

/// The arguments of an agent on another host.
fn agent_arguments(options: &AgentOptions) -> Vec<String> {
    let mut arguments = vec![
        "--interval-ms".to_owned(),
        options.interval.as_millis().to_string(),
    ];
    if !options.only.is_empty() {
        arguments.extend(["--only".to_owned(), options.only.join(",")]);
    }
    let flags = [
        ("--demo", options.demo != SimulatedMachine::None),
        ("--demo-past", options.demo == SimulatedMachine::WithPast),
        ("--detail", options.detail),
        ("--readonly", options.readonly),
    ];
    arguments.extend(
        flags
            .iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(flag, _)| (*flag).to_owned()),
    );
    arguments
}

impl FirstContact {
    /// Parses a line without its line end. Returns `None` for a line that is not the marker with
    /// this nonce.
    pub(crate) fn parse(line: &[u8], nonce: &str) -> Option<Self> {
        let mut fields = script::fields(line, nonce)?.map(Text::new);
        let mut field = || fields.next();
        let (system, glibc) = (field()?, field()?);
        let (kind, first, second) = (field()?, field()?, field()?);
        let found = match kind.as_str() {
            "gputop" => Found::Gputop {
                version: first,
                path: second,
            },
            "nvidia-smi" => Found::NvidiaSmi,
            "nothing" => Found::Nothing {
                has_nvidia_smi: !first.as_str().is_empty(),
                folder: second,
            },
            _ => return None,
        };
        Some(Self {
            system,
            glibc: GlibcVersion::parse(glibc.as_str()),
            found,
        })
    }
}

#[cfg(test)]
mod tests;
