//! Options before the subcommand, as in `gputop --demo orphans`.

use std::ffi::OsString;

use clap::{Arg, CommandFactory};

use super::Cli;

/// Leaves `--help` out of `gputop help --help`, which clap takes for the name of a subcommand.
pub(super) fn without_help_of_help(
    args: impl Iterator<Item = OsString>,
) -> impl Iterator<Item = OsString> {
    let mut is_help = false;
    args.enumerate()
        .filter(move |(place, arg)| {
            is_help |= *place == 1 && arg == "help";
            !(is_help && (arg == "--help" || arg == "-h"))
        })
        .map(|(_, arg)| arg)
}

/// Moves options that stand before a subcommand behind it, if the subcommand has them. The others
/// stay: clap refuses them.
pub(super) fn after_subcommand(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    if !args.get(1).is_some_and(is_option) {
        return args;
    }
    let command = Cli::command();
    let (mut end, mut options) = (1, Vec::new());
    while let Some(option) = args.get(end).filter(|arg| is_option(arg)) {
        let Some(text) = option.to_str() else {
            return args;
        };
        let (name, value) = text
            .split_once('=')
            .map_or((text, None), |(name, value)| (name, Some(value)));
        let is_known = |known: &&Arg| {
            known
                .get_long()
                .is_some_and(|long| name.strip_prefix("--") == Some(long))
                || known
                    .get_short()
                    .is_some_and(|short| name.strip_prefix('-') == Some(&short.to_string()))
        };
        let known = command.get_arguments().find(is_known);
        // Whether a word is the value of an option or the subcommand is known only if the option
        // must have one.
        let Some(known) = known else { return args };
        let has_value = known.get_action().takes_values() && value.is_none();
        if has_value
            && known
                .get_num_args()
                .is_some_and(|count| count.min_values() == 0)
        {
            return args;
        }
        let length = if has_value { 2 } else { 1 };
        options.push((end, length, known.get_id()));
        end += length;
    }
    let subcommand = args.get(end).and_then(|name| command.find_subcommand(name));
    let Some(subcommand) = subcommand else {
        return args;
    };
    let is_shared = |id| subcommand.get_arguments().any(|known| known.get_id() == id);
    // From the last to the first, so that the places before stay valid.
    for (place, length, _) in options.into_iter().rev().filter(|(.., id)| is_shared(*id)) {
        args[place..=end].rotate_left(length);
        end -= length;
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_help_is_the_help() {
        for (line, expected) in [
            ("gputop help --help", "gputop help"),
            ("gputop help free -h", "gputop help free"),
            ("gputop free --help", "gputop free --help"),
            ("gputop run -- help --help", "gputop run -- help --help"),
        ] {
            let args: Vec<_> = without_help_of_help(line.split(' ').map(OsString::from)).collect();
            let expected: Vec<_> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(args, expected);
        }
    }

    #[test]
    fn options_of_a_subcommand_may_stand_before_it() {
        let moved = |line: &str| {
            let args = after_subcommand(line.split(' ').map(OsString::from));
            args.into_iter()
                .map(|arg| arg.into_string().unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            moved("gputop --demo orphans --json"),
            "gputop orphans --demo --json"
        );
        assert_eq!(
            moved("gputop --nvml-lib a.so --interval=1s free -n 2 -- orphans"),
            "gputop free --nvml-lib a.so --interval=1s -n 2 -- orphans"
        );
        assert_eq!(moved("gputop -i 0 orphans"), "gputop orphans -i 0");
        assert_eq!(
            moved("gputop --mine --demo orphans"),
            "gputop --mine orphans --demo"
        );
        for unchanged in [
            "gputop orphans --demo",
            "gputop --demo",
            "gputop --loop orphans",
            "gputop --theme orphans",
        ] {
            assert_eq!(moved(unchanged), unchanged);
        }
    }
}
