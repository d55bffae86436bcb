//! Shell completions and manual pages: `gputop completions` and `gputop man`.

use std::fs;
use std::process::Command;

use crate::print_note;
use crate::process::{Output, run};

fn gputop(args: &[&str]) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_gputop")).args(args))
}

#[test]
fn bash_completes_subcommands_flags_and_names_of_columns() {
    let completed = |words: &str, place: usize| {
        let script = format!(
            "source <('{}' completions bash)\nCOMP_WORDS=(gputop {words})\nCOMP_CWORD={place}\n\
             _gputop gputop \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            env!("CARGO_BIN_EXE_gputop")
        );
        let output = run(Command::new("bash").args(["-c", &script]));
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.text()
    };
    assert!(completed("orp", 1).contains("orphans"));
    assert!(completed("free --", 2).contains("--ids"));
    assert!(completed("--sort gro", 2).contains("growth"));
    assert!(completed("--columns ver", 2).contains("verdict"));
}

#[test]
fn zsh_and_fish_take_their_completions() {
    for (shell, script) in [
        (
            "zsh",
            "autoload -U compinit; compinit -u -D; source <(GPUTOP completions zsh); (( $+functions[_gputop] ))",
        ),
        (
            "fish",
            "GPUTOP completions fish | source; complete -C 'gputop orp' | string match -q 'orphans*'",
        ),
    ] {
        if Command::new(shell).arg("--version").output().is_err() {
            print_note(format_args!("skipped: {shell}, which is not installed"));
            continue;
        }
        let script = script.replace("GPUTOP", env!("CARGO_BIN_EXE_gputop"));
        let output = run(Command::new(shell).args(["-c", &script]));
        assert_eq!(
            output.code,
            0,
            "{shell}: {}{}",
            output.text(),
            output.stderr
        );
        assert_eq!(output.stderr, "", "{shell}");
    }
}

#[test]
fn another_shell_is_refused_with_the_names_of_those_that_have_completions() {
    let output = gputop(&["completions", "csh"]);
    assert_eq!(output.code, 2, "{}", output.text());
    assert!(
        output.stderr.contains("bash") && output.stderr.contains("fish"),
        "{}",
        output.stderr
    );
}

#[test]
fn the_manual_has_a_page_for_gputop_and_one_for_each_subcommand() {
    let main = gputop(&["man"]);
    assert_eq!(main.code, 0, "{}", main.stderr);
    for heading in [
        ".TH gputop 1",
        ".SH KEYS",
        ".SH ENVIRONMENT",
        ".SH \"EXIT STATUS\"",
    ] {
        let bare = heading.replace('"', "");
        let text = main.text();
        assert!(
            text.contains(heading) || text.contains(&bare),
            "no {heading} in {text}"
        );
    }
    let page = gputop(&["man", "orphans"]);
    assert!(page.text().contains("gputop orphans"), "{}", page.text());

    let folder = tempfile::tempdir().expect("/tmp has room");
    let pages = folder.path().join("man1");
    let output = gputop(&["man", "--all", pages.to_str().expect("the path is text")]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let read = |name: &str| fs::read_to_string(pages.join(name)).expect("the page is written");
    assert_eq!(read("gputop.1"), main.text());
    assert_eq!(read("gputop-orphans.1"), page.text());
    assert!(!pages.join("gputop-group-witness.1").exists());
}

#[test]
fn a_page_that_does_not_exist_and_a_folder_that_cannot_be_written_are_refused() {
    let output = gputop(&["man", "orphan"]);
    assert_eq!(output.code, 2, "{}", output.text());
    assert!(
        output.stderr.contains("no subcommand `orphan`"),
        "{}",
        output.stderr
    );
    let output = gputop(&["man", "--all", "/proc/none"]);
    assert_eq!(output.code, 1, "{}", output.text());
    assert!(
        output.stderr.contains("cannot create /proc/none"),
        "{}",
        output.stderr
    );
}
