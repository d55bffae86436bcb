//! The flags of nvidia-smi that gputop has under its own name too.

use std::path::PathBuf;

use clap::Args;

/// The flags of nvidia-smi.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of nvidia-smi")]
pub(crate) struct QueryArgs {
    /// Print these fields of each GPU; `--help-query-gpu` lists them
    #[arg(
        long = "query-gpu",
        value_name = "FIELD,…",
        value_delimiter = ',',
        conflicts_with = "via"
    )]
    pub(super) gpu: Option<Vec<String>>,

    /// Print these fields of each compute process; `--help-query-compute-apps` lists them
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', conflicts_with_all = ["gpu", "via"])]
    pub(super) query_compute_apps: Option<Vec<String>>,

    /// Output format: `csv`, optionally with `noheader` and `nounits`
    #[arg(long, value_name = "csv[,…]", value_delimiter = ',')]
    pub(super) format: Vec<String>,

    /// List the GPUs and their MIG instances
    #[arg(short = 'L', long = "list-gpus", conflicts_with = "via")]
    pub(super) list: bool,

    /// Print the changing values of each GPU as CSV, or those of each process on a GPU, in base
    /// units, with the names of the JSON
    #[arg(long, value_name = "gpus|processes", num_args = 0..=1, require_equals = true, default_missing_value = "gpus")]
    #[arg(value_parser = ["gpus", "processes"], hide_possible_values = true)]
    #[arg(conflicts_with_all = ["gpu", "query_compute_apps", "list", "via"])]
    pub(super) csv: Option<String>,

    /// Write to this file instead of the standard output
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(super) filename: Option<PathBuf>,

    /// Show only these GPUs, given by index, UUID or PCI bus ID; in every output but the screen
    #[arg(short = 'i', long = "id", value_name = "GPU,…", value_delimiter = ',')]
    pub(super) id: Vec<String>,

    /// Print these fields of each GPU whose memory can remap rows; `--help-query-remapped-rows`
    /// lists them
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', conflicts_with_all = ["gpu", "query_compute_apps", "via"])]
    pub(super) query_remapped_rows: Option<Vec<String>>,

    /// List the fields of `--query-gpu`
    #[arg(long = "help-query-gpu")]
    pub(super) help_gpu: bool,

    /// List the fields of `--query-compute-apps`
    #[arg(long = "help-query-compute-apps")]
    pub(super) help_compute_apps: bool,

    /// List the fields of `--query-remapped-rows`
    #[arg(long = "help-query-remapped-rows")]
    pub(super) help_remapped_rows: bool,
}
