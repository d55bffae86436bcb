//! The text of `nvidia-smi --help`: the options that gputop answers under that name.

use crate::protocol::snapshot::Snapshot;

const OPTIONS: &str = "
nvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...

    This is gputop, called as nvidia-smi. It answers these options as nvidia-smi does, and changes no setting.

    -h,   --help                Print usage information and exit.
          --version             Print version information and exit.
    -L,   --list-gpus           Display a list of GPUs connected to the system.
    <no arguments>              Show a summary of GPUs connected to the system.
          --query-gpu=          Information about GPU. Call --help-query-gpu for more info.
          --query-compute-apps= List of currently active compute processes.
                                Call --help-query-compute-apps for more info.
          --query-remapped-rows= Information about remapped rows. Call --help-query-remapped-rows for more info.
          --format=             Comma separated list of format options: csv (mandatory), noheader, nounits.
    pmon                        Display process stats in scrolling format: -i, -d, -c, -s u|m|um, -o D|T|DT, -f.

    [plus any of]

    -i,   --id=                 Target a specific GPU: index, UUID or PCI bus ID; several with commas.
    -f,   --filename=           Log to a specified file, rather than to stdout.
    -l,   --loop=               Probe until Ctrl+C at specified second interval.
    -lms, --loop-ms=            Probe until Ctrl+C at specified millisecond interval.
";

/// Returns the help. Scripts read the version of the driver from its first line.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let version = snapshot
        .driver
        .version
        .as_ref()
        .map_or_else(String::new, |version| format!(" -- v{version}"));
    format!("NVIDIA System Management Interface{version}\n{OPTIONS}")
}
