//! `gputop notify`: sends one message now, to try a notification.

use std::process::ExitCode;

use clap::Args;

use crate::base::text::Text;
use crate::notify::{self, Destination, Message};
use crate::output::{Exit, print, print_error};

/// The options of `gputop notify`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NotifyArgs {
    /// The NAME of a `[notify.NAME]` table in config.toml
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// The sentence of the message
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "gputop can reach you: this message is only a test"
    )]
    sentence: String,
}

/// Sends the message to the destination with the name, which may be refused, and says whether it
/// arrived.
///
/// # Errors
///
/// When the standard output cannot be written.
pub(crate) fn run(
    args: &NotifyArgs,
    destination: Option<&Destination>,
    refusals: &[Text],
) -> anyhow::Result<ExitCode> {
    for refusal in refusals {
        print_error(refusal);
    }
    let Some(to) = destination else {
        return Ok(Exit::Error.into());
    };
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    match notify::try_once(&Message::test(host, args.sentence.clone()), to) {
        Ok(()) => {
            print(format!("notification {}: the server took the message\n", to.name).as_bytes())?;
            Ok(Exit::Success.into())
        }
        Err(cause) => {
            print_error(&Text::new(format!(
                "notification {}: the message did not arrive: {cause}",
                to.name
            )));
            Ok(Exit::Error.into())
        }
    }
}
