//! `gputop man`: prints a manual page, or writes all of them for a package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::base::text::Text;
use crate::output::{self, Exit};

/// The arguments of `gputop man`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManArgs {
    /// Print the page of this subcommand [default: the page of gputop itself]
    #[arg(value_name = "SUBCOMMAND")]
    subcommand: Option<String>,

    /// Write the page of gputop and of each subcommand to this folder, as `gputop.1`,
    /// `gputop-free.1` and so on
    #[arg(long, value_name = "FOLDER", conflicts_with = "subcommand")]
    all: Option<PathBuf>,
}

/// A manual page.
#[derive(Debug)]
pub(crate) struct ManualPage {
    /// `None` for the page of gputop itself.
    pub(crate) subcommand: Option<String>,
    /// The page in the language of `man`.
    pub(crate) roff: Vec<u8>,
}

/// Prints one of the pages, or writes all of them.
///
/// # Errors
///
/// When the output cannot be written.
pub(crate) fn run(args: &ManArgs, pages: &[ManualPage]) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.all {
        write_all(pages, folder)?;
        return Ok(Exit::Success.into());
    }
    let Some(page) = pages.iter().find(|page| page.subcommand == args.subcommand) else {
        let name = args.subcommand.as_deref().unwrap_or_default();
        return Ok(output::refuse(&Text::new(format!(
            "gputop has no subcommand `{name}`: `gputop --help` lists them"
        ))));
    };
    output::print(&page.roff)?;
    Ok(Exit::Success.into())
}

fn write_all(pages: &[ManualPage], folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for page in pages {
        let name = match &page.subcommand {
            Some(subcommand) => format!("gputop-{subcommand}.1"),
            None => "gputop.1".to_owned(),
        };
        let file = folder.join(name);
        fs::write(&file, &page.roff).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
