//! Masks the command lines in `tests/data/secrets`, and command lines of random words.

use proptest::prelude::*;

use super::*;

const SECRET: &str = include_str!("../../../tests/data/secrets/secret.txt");
const INNOCENT: &str = include_str!("../../../tests/data/secrets/innocent.txt");
const PROGRAM_EXAMPLES: &str = include_str!("../../../tests/data/secrets/programs.txt");
const ISSUER_EXAMPLES: &str = include_str!("../../../tests/data/secrets/issuers.txt");

/// Returns the lines of a file without its comments.
fn lines(file: &str) -> Vec<&str> {
    file.lines().filter(|line| !line.starts_with('#')).collect()
}

/// Splits a line as a shell does.
fn arguments(line: &str) -> Vec<Text> {
    shell_words::split(line)
        .unwrap_or_else(|error| panic!("{error}: {line}"))
        .into_iter()
        .map(Text::from)
        .collect()
}

fn masked(line: &str) -> Vec<String> {
    mask_argv(arguments(line).into_iter())
        .iter()
        .map(str::to_owned)
        .collect()
}

/// Returns the secrets of a line, which stand between `«` and `»`, and the line without these
/// marks.
fn secrets(line: &str) -> (Vec<&str>, String) {
    let secrets = line
        .split('«')
        .skip(1)
        .map(|rest| rest.split_once('»').expect("a secret has an end").0)
        .collect();
    (secrets, line.replace(['«', '»'], ""))
}

#[test]
fn no_secret_of_the_known_command_lines_is_shown() {
    let mut leaks = Vec::new();
    let lines = lines(SECRET);
    for line in &lines {
        let (secrets, line) = secrets(line);
        assert!(!secrets.is_empty(), "{line}");
        let shown = masked(&line);
        if secrets
            .iter()
            .any(|secret| shown.iter().any(|word| word.contains(secret)))
        {
            leaks.push(format!("{line}\n    {}", shown.join(" | ")));
        }
    }
    assert!(lines.len() >= 150);
    assert!(
        leaks.is_empty(),
        "{} of {} leak\n{}",
        leaks.len(),
        lines.len(),
        leaks.join("\n")
    );
}

#[test]
fn nothing_in_the_innocent_command_lines_is_masked() {
    let mut changed = Vec::new();
    let lines = lines(INNOCENT);
    for line in &lines {
        let shown = masked(line);
        if shown
            .iter()
            .map(String::as_str)
            .ne(arguments(line).iter().map(Text::as_str))
        {
            changed.push(format!("{line}\n    {}", shown.join(" | ")));
        }
    }
    assert!(lines.len() >= 150);
    assert!(
        changed.is_empty(),
        "{} of {} are masked\n{}",
        changed.len(),
        lines.len(),
        changed.join("\n")
    );
}

#[test]
fn each_row_of_the_table_of_programs_has_an_example() {
    let mut covered = vec![false; programs::PROGRAMS.len()];
    for line in lines(PROGRAM_EXAMPLES) {
        let (secrets, plain) = secrets(line);
        let expected: Vec<Text> =
            arguments(&secrets.iter().fold(line.to_owned(), |line, secret| {
                line.replace(&format!("«{secret}»"), MASK)
            }));
        assert_eq!(
            masked(&plain),
            expected.iter().map(Text::as_str).collect::<Vec<_>>(),
            "{line}"
        );
        for row in rows_of(&plain) {
            covered[row] = true;
        }
    }
    let without: Vec<String> = (programs::PROGRAMS.iter().zip(covered))
        .filter(|(_, is_covered)| !is_covered)
        .map(|(row, _)| format!("{} {} {}", row.programs, row.after, row.options))
        .collect();
    assert!(
        without.is_empty(),
        "rows without an example in programs.txt:\n{}",
        without.join("\n")
    );
}

/// Returns the numbers of the rows that find a secret in a line, or in the shell text in it.
fn rows_of(line: &str) -> Vec<usize> {
    let arguments = arguments(line);
    let words: Vec<Word<'_>> = arguments
        .iter()
        .enumerate()
        .map(|(number, text)| Word::of_argument(number, text.as_str()))
        .collect();
    let texts = words
        .iter()
        .flat_map(shell::commands)
        .map(|command| command.words);
    let commands: Vec<Vec<Word<'_>>> = texts.chain([words.clone()]).collect();
    let found = |words: &Vec<Word<'_>>| {
        commands::secrets(words, &commands::programs(words))
            .into_iter()
            .map(|secret| secret.row)
            .collect::<Vec<_>>()
    };
    let rows: Vec<_> = commands.iter().flat_map(found).collect();
    let is_of = |row: &programs::ProgramSecrets| rows.iter().any(|found| std::ptr::eq(*found, row));
    (0..programs::PROGRAMS.len())
        .filter(|number| is_of(&programs::PROGRAMS[*number]))
        .collect()
}

#[test]
fn tokens_of_each_issuer_are_recognised_by_their_shape() {
    let examples = lines(ISSUER_EXAMPLES);
    for example in &examples {
        let (issuer, token) = example
            .split_once('\t')
            .expect("a tab stands between issuer and token");
        let found = find(&["run".into(), format!("x={token},y").into()]);
        let rule = SecretRule::Shape(
            tokens::ISSUERS
                .iter()
                .find(|known| known.name == issuer)
                .map_or("", |known| known.name),
        );
        let is_known = found
            .iter()
            .any(|secret| secret.rule == rule || rule == SecretRule::Shape(""));
        assert!(is_known, "{example}: {found:?}");
        assert_eq!(mask_text(&format!("x={token},y")), "x=***,y", "{example}");
    }
    for issuer in tokens::ISSUERS {
        assert!(
            examples
                .iter()
                .any(|example| example.starts_with(issuer.name)),
            "{} has no example",
            issuer.name
        );
    }
}

/// Checks what is shown of a command line, whose arguments are separated by `|`.
#[track_caller]
fn check(arguments: &str, expected: &str) {
    let shown = mask_argv(arguments.split('|').map(Text::from));
    assert_eq!(shown.iter().collect::<Vec<_>>().join("|"), expected);
}

#[test]
fn only_the_secret_part_of_an_argument_is_masked() {
    check(
        "serve|--api-key=abc|--port|80",
        "serve|--api-key=***|--port|80",
    );
    check("serve|--token|abc def|x.py", "serve|--token|***|x.py");
    check(
        "-Djavax.keyStorePassword=a b",
        "-Djavax.keyStorePassword=***",
    );
    check(
        "env|HF_TOKEN=abc|WANDB_API_KEY=a;b|python",
        "env|HF_TOKEN=***|WANDB_API_KEY=***|python",
    );
    check(
        "sh|-c|HF_TOKEN=abc exec python a.py --token 'x y' -n 2",
        "sh|-c|HF_TOKEN=*** exec python a.py --token '***' -n 2",
    );
    check(
        "a|{\"api_key\": \"x\", \"n\": 2}",
        "a|{\"api_key\": \"***\", \"n\": 2}",
    );
    check(
        "python|-c|os.environ['HF_TOKEN'] = 'abc'; f(password='x')",
        "python|-c|os.environ['HF_TOKEN'] = '***'; f(password='***')",
    );
    // A program may write its whole command line into its first argument.
    check(
        "python a.py --hf-token abc --lr 1",
        "python a.py --hf-token *** --lr 1",
    );
    check(
        "sh|-c|curl -H \"authorization: basic abc\" x",
        "sh|-c|curl -H \"authorization: basic ***\" x",
    );
    check(
        "curl|-H|Authorization: Bearer abc",
        "curl|-H|Authorization: Bearer ***",
    );
    check(
        "git|clone|https://me:x@y@host.com/a:b",
        "git|clone|https://me:***@host.com/a:b",
    );
    check(
        "a|https://h/b?x=1&token=abc&y=2#z",
        "a|https://h/b?x=1&token=***&y=2#z",
    );
    check(
        "a|s3://h/b?X-Amz-Signature=00ff&n=1",
        "a|s3://h/b?X-Amz-Signature=***&n=1",
    );
    check(
        "a|eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.SflKx-_wRJ b",
        "a|*** b",
    );
}

#[test]
fn shell_text_within_shell_text_is_searched() {
    check(
        "ssh|h|bash -c \"mysql -p'a b' x\"",
        "ssh|h|bash -c \"mysql -p'***' x\"",
    );
    check(
        "bash|-c|a=$(curl -u me:pw x) && echo \"$(redis-cli -a pw get k)\"",
        "bash|-c|a=$(curl -u me:*** x) && echo \"$(redis-cli -a *** get k)\"",
    );
    check(
        "bash|-c|mysql \\\u{FFFD} -ppw\u{FFFD}ls -ppw",
        "bash|-c|mysql \\\u{FFFD} -p***\u{FFFD}ls -ppw",
    );
    check("bash|-c|mysql -p\"a\"'b'c", "bash|-c|mysql -p***");
}

#[test]
fn text_that_is_not_ascii_is_kept() {
    check(
        "名前=é|--パス|password=名前|ü hf_é",
        "名前=é|--パス|password=***|ü hf_é",
    );
}

#[test]
fn a_found_secret_names_its_program_its_option_and_its_rule() {
    let found = |line| {
        let found = find(&arguments(line)).into_iter();
        found
            .map(|secret| (secret.program, secret.option, secret.rule))
            .collect::<Vec<_>>()
    };
    let secret =
        |program: &str, option: &str, rule| vec![(program.to_owned(), option.to_owned(), rule)];
    assert_eq!(
        found("sudo mysql -ppw"),
        secret("mysql", "-p", SecretRule::Program)
    );
    assert_eq!(
        found("python a.py --hf-token abc"),
        secret("a.py", "--hf-token", SecretRule::Name)
    );
    assert_eq!(
        found("git clone https://me:pw@h/x"),
        secret("git", "", SecretRule::Url)
    );
    assert_eq!(
        found("a r8_A1b2C3d4E5f6G7h8I9j0A1"),
        secret("a", "", SecretRule::Shape("Replicate"))
    );
}

/// Words from which command lines are made: parts of options, names, secrets, quotes and
/// separators.
fn word() -> impl Strategy<Value = String> {
    let parts = [
        "--password",
        "--token",
        "-p",
        "-u",
        "-a",
        "=",
        ":",
        "@",
        "'",
        "\"",
        "\\",
        " ",
        "|",
        ";",
        "$(",
        ")",
        "`",
        "<<<",
        "&",
        "%",
        "mysql",
        "curl",
        "redis-cli",
        "sudo",
        "docker",
        "login",
        "bash",
        "-c",
        "echo",
        "-S",
        "openssl",
        "pass:",
        "https://",
        "me:pw",
        "API_KEY",
        "hf_A1b2C3d4E5f6G7h8I9j0",
        "ghp_A1b2C3d4E5f6G7h8I9j0",
        "eyJhbGciOiJIUzI1NiJ9",
        "Bearer ",
        "abc123",
        "secret",
        "***",
        "*",
        "{",
        "}",
        "é",
        "\u{FFFD}",
        "AKIAIOSFODNN7EXAMPLE",
        "hooks.slack.com/services/",
        "-----BEGIN RSA PRIVATE KEY-----",
        "auth=(",
        "putenv(",
        "setdefault(",
        "é(",
        "login(",
        "key=",
        " SECRET ",
        "PASSWORD ",
        "identified by ",
        "user=",
        "/password:",
        "\u{FFFD}=",
        ".login(",
        ",",
        "assword",
        "send ",
        "xoxb-",
    ];
    proptest::collection::vec(proptest::sample::select(parts.to_vec()), 1..6)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn masking_masked_arguments_changes_nothing(words in proptest::collection::vec(word(), 1..8), any in ".*") {
        let arguments = words.iter().map(|word| Text::from(word.as_str())).chain([Text::from(any)]);
        let once = mask_argv(arguments);
        let twice = mask_argv(once.iter().map(Text::from));
        prop_assert_eq!(&once, &twice);
    }
}
