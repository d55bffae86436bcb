//! Obeys the commands that come from the standard input, and ends the agent when that closes.

use std::io::{self, BufRead};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{Known, Wake, writer};
use crate::cli::SHORTEST_INTERVAL;
use crate::control::{Command, Outcome, Reply};

/// Starts the thread that reads commands.
pub(super) fn spawn(
    known: Known,
    wake: mpsc::Sender<Wake>,
    replies: writer::Replies,
    _readonly: bool,
) -> io::Result<()> {
    thread::Builder::new().name("hands".to_owned()).spawn(move || obey(&known, &wake, &replies))?;
    Ok(())
}

fn obey(known: &Known, wake: &mpsc::Sender<Wake>, replies: &writer::Replies) {
    for line in io::stdin().lock().split(b'\n') {
        let Ok(line) = line else { break };
        let effect = match Command::parse(&line) {
            Ok(Command::Interval { milliseconds }) => {
                Wake::Interval(Duration::from_millis(milliseconds).max(SHORTEST_INTERVAL))
            }
            Ok(Command::Scan) => Wake::Scan,
            Ok(
                Command::Inspect { process }
                | Command::Hold { process }
                | Command::Release { process }
                | Command::Signal { process, .. },
            ) => {
                let who = if known.get(process.pid).is_some() { "a tenant" } else { "no tenant" };
                let reason = format!("{} is {who}, and this agent only watches", process.pid).into();
                replies.send(Reply { process, outcome: Outcome::Refused { reason } });
                continue;
            }
            // A later viewer may know commands that this agent does not.
            Err(_) => continue,
        };
        if wake.send(effect).is_err() {
            break;
        }
    }
    super::leave();
}
