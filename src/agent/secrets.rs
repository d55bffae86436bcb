//! Replaces secrets in arguments by `***`, before they leave the agent: pictures of
//! the screen, recordings and reports are shared. Keeps everything else. Never decides which process a process is.
//!
//! Three kinds of secrets are found: values whose name says that they are secret, credentials in URLs, and tokens of
//! well-known shapes.

use std::ops::Range;

use crate::base::text::{Argv, Text};

const MASK: &str = "***";

/// Parts of names. A value is secret if its name contains one of these, as in `DB_PASSWORD_2` or `clientSecret`.
const SECRET_WORDS: [&str; 5] = ["password", "passwd", "passphrase", "secret", "credential"];
/// The last words of names of things that describe a secret, as in `--password-file`.
const DESCRIPTIONS: &str = "file path dir type name length len size policy id";
/// Names end in these where a value is secret, as in `HF_TOKEN`. `token` also ends words, as in `authtoken`.
const SECRET_ENDS: &str =
    "key apikey accesskey secretkey privatekey authkey sshkey auth oauth authorization jwt pwd cookie";
/// The words before `token` or `key` in names of things that are no secrets, as in `--pad-token` or `prompt_key`.
const HARMLESS_TOKENS: &str = "pad eos bos unk mask sep cls image stop special max min num per new add prompt next start \
    end audio video sort label text input output response reward fn monitor primary foreign public batch group cache \
    metric dict column data query target answer question messages";
/// The first words of options that take no value, as in `--use-auth-token`.
const SWITCHES: &str = "use no enable disable skip require allow with";
/// Values of a `token`, `key` or `auth` that are no secrets.
const HARMLESS_VALUES: &str = "true false none null yes no on off auto";
/// Parameters of signed URLs, besides those with a secret name.
const URL_SIGNATURES: &str = "sig signature x-amz-signature x-amz-credential x-goog-signature x-goog-credential";
/// The words before the value of the header `Authorization`.
const SCHEMES: [&str; 3] = ["Bearer ", "Basic ", "Token "];

/// The beginning of a well-known kind of token, the least number of characters after it, and which characters besides
/// letters and digits may follow.
const SHAPES: [(&str, usize, &str); 21] = [
    ("hf_", 20, ""),
    ("ghp_", 20, ""),
    ("gho_", 20, ""),
    ("ghu_", 20, ""),
    ("ghs_", 20, ""),
    ("ghr_", 20, ""),
    ("github_pat_", 20, "_"),
    ("glpat-", 16, "_-."),
    ("sk-", 20, "_-"),
    ("sk_live_", 16, ""),
    ("gsk_", 20, ""),
    ("nvapi-", 20, "_-"),
    ("npm_", 20, ""),
    ("pypi-", 20, "_-"),
    ("xoxb-", 10, "-"),
    ("xoxp-", 10, "-"),
    ("xoxa-", 10, "-"),
    ("AKIA", 16, ""),
    ("ASIA", 16, ""),
    ("AIza", 30, "_-"),
    ("eyJ", 16, "_-."),
];

/// Masks the secrets in the arguments of a process.
pub(super) fn mask_argv(arguments: impl Iterator<Item = Text>) -> Argv {
    let mut option: Option<String> = None;
    let mut before = String::new();
    let mask_one = |argument: Text| {
        let text = argument.as_str();
        let is_value = option.take().is_some_and(|name| !text.starts_with('-') && is_secret(&name, text));
        let is_wandb_key = before == "login" && is_hex_40(text);
        if text.starts_with('-') && text.bytes().all(is_name_byte) && !is_switch(text) {
            option = Some(text.to_owned());
        }
        text.clone_into(&mut before);
        if (is_value || is_wandb_key) && !text.is_empty() { MASK.into() } else { mask(argument) }
    };
    arguments.map(mask_one).collect()
}

/// Masks the secrets in one argument.
fn mask(argument: Text) -> Text {
    let text = argument.as_str();
    let mut secrets = [named_values(text), url_credentials(text), shapes(text)].concat();
    if secrets.is_empty() {
        return argument;
    }
    secrets.sort_by_key(|secret| secret.start);
    let (mut masked, mut end) = (String::new(), 0);
    for secret in secrets {
        if secret.start >= end {
            masked.push_str(&text[end..secret.start]);
            masked.push_str(MASK);
        }
        end = end.max(secret.end);
    }
    masked.push_str(&text[end..]);
    masked.into()
}

/// Finds values after names: `name=value`, `--name value`, `"name": "value"`, `Name: value`.
fn named_values(text: &str) -> Vec<Range<usize>> {
    let (mut values, mut at) = (Vec::new(), 0);
    while let Some(start) = text[at..].bytes().position(is_name_byte).map(|found| at + found) {
        let end = end_of(text, start, |character| !character.is_ascii() || !is_name_byte(character as u8));
        at = end;
        if let Some(value) = value_after(text, start..end)
            && !value.is_empty()
            && is_secret_in(text, start..end, &text[value.clone()])
        {
            at = value.end;
            values.push(value);
        }
    }
    values
}

/// Whether the value of this name is a secret, also as a parameter of a URL.
fn is_secret_in(text: &str, name: Range<usize>, value: &str) -> bool {
    let is_parameter = text[..name.start].ends_with(['?', '&']);
    is_secret(&text[name.clone()], value)
        || is_parameter && URL_SIGNATURES.split(' ').any(|known| known.eq_ignore_ascii_case(&text[name.clone()]))
}

/// Returns the value that follows a name.
fn value_after(text: &str, name: Range<usize>) -> Option<Range<usize>> {
    let (value, is_rest) = value_and_rest(text, &name)?;
    let is_parameter = text[..name.start].ends_with(['?', '&']);
    let opened = if is_rest { value } else { value.trim_start_matches('\\') };
    let quote = opened.chars().next().filter(|mark| !is_rest && is_quote(*mark));
    let inner = &opened[quote.map_or(0, char::len_utf8)..];
    let scheme = SCHEMES.iter().find(|scheme| starts_with_ignoring_case(inner, scheme));
    let start = text.len() - inner.len() + scheme.map_or(0, |scheme| scheme.len());
    let is_end = |character: char| match quote {
        Some(quote) => character == quote || character == '\\',
        None if is_parameter => matches!(character, '&' | '#') || is_quote(character) || character.is_whitespace(),
        None => !is_rest && (is_quote(character) || character.is_whitespace()),
    };
    Some(start..end_of(text, start, is_end))
}

/// Returns the text from the value of this name on, and whether all of that text is the value.
fn value_and_rest<'a>(text: &'a str, name: &Range<usize>) -> Option<(&'a str, bool)> {
    let word = &text[name.clone()];
    let is_first = name.start == 0;
    let after = text[name.end..].trim_start_matches(['"', '\'', ']', '\\']);
    let is_quoted = after.len() < text.len() - name.end;
    if let Some(value) = after.strip_prefix('=').filter(|value| !value.starts_with('=')) {
        return Some((value, is_first && (word.starts_with('-') || !text.contains(char::is_whitespace))));
    }
    // `name = "value"`.
    if let Some(value) = after.trim_start().strip_prefix('=').map(str::trim_start) {
        return value.starts_with(is_quote).then_some((value, false));
    }
    // `name: value` or `x-name:value`, but not `module.name:function`.
    if let Some(value) = after.strip_prefix(':') {
        let is_header = value.starts_with(' ') || word.contains(['-', '_']) && !value.starts_with("//");
        return (is_quoted || is_header).then_some((value.trim_start(), is_first));
    }
    let value = after.strip_prefix(char::is_whitespace)?.trim_start();
    let is_option = word.starts_with('-') && !is_switch(word) && !value.starts_with('-');
    is_option.then_some((value, false))
}

/// Finds the password in `https://user:password@host`, and the token in `https://token@host`.
fn url_credentials(text: &str) -> Vec<Range<usize>> {
    /// No login name of a person or of Git is longer.
    const LONGEST_NAME: usize = 16;
    let credentials = |(at, _): (usize, &str)| {
        let start = at + "://".len();
        let end = end_of(text, start, |character| {
            matches!(character, '/' | '?' | '#') || is_quote(character) || character.is_whitespace()
        });
        let user = &text[start..start + text[start..end].rfind('@')?];
        match user.find(':') {
            Some(colon) => Some(start + colon + 1..start + user.len()),
            None => (user.len() > LONGEST_NAME).then_some(start..start + user.len()),
        }
    };
    text.match_indices("://").filter_map(credentials).filter(|secret| !secret.is_empty()).collect()
}

/// Finds tokens whose shape tells that they are secrets, and those after `Bearer` or `Basic`.
fn shapes(text: &str) -> Vec<Range<usize>> {
    const LEAST_AFTER_SCHEME: usize = 16;
    let mut found = Vec::new();
    let mut find = |prefix: &str, least: usize, others: &str, is_prefix_kept: bool| {
        for (at, _) in text.match_indices(prefix) {
            let is_inside = text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
            let body = at + prefix.len();
            let end = end_of(text, body, |character| !character.is_ascii_alphanumeric() && !others.contains(character));
            if !is_inside
                && end - body >= least
                && text[at..end].bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
            {
                found.push(if is_prefix_kept { body..end } else { at..end });
            }
        }
    };
    for (prefix, least, others) in SHAPES {
        find(prefix, least, others, false);
    }
    for scheme in ["Bearer ", "bearer ", "Basic ", "basic "] {
        find(scheme, LEAST_AFTER_SCHEME, "._-+/=~", true);
    }
    found
}

/// Whether a value with this name is a secret.
fn is_secret(name: &str, value: &str) -> bool {
    let words = words(name);
    let Some((last, before)) = words.split_last() else { return false };
    if words.iter().any(|word| SECRET_WORDS.iter().any(|secret| word.contains(secret))) {
        return !is_in(DESCRIPTIONS, last);
    }
    let is_number = value.len() <= 6 && value.bytes().all(|byte| byte.is_ascii_digit());
    (is_in(SECRET_ENDS, last) || last.ends_with("token"))
        && !before.last().is_some_and(|word| is_in(HARMLESS_TOKENS, word))
        // The working directory, which shells export.
        && !["PWD", "OLDPWD"].contains(&name)
        && !is_number
        && !is_in(HARMLESS_VALUES, &value.to_ascii_lowercase())
}

/// Splits a name into words in lower case: `--hf-token`, `HF_TOKEN` and `hfToken` are `hf`, `token`. A number at the end
/// is left out.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in name.chars() {
        if !character.is_ascii_alphanumeric() || was_lower && character.is_ascii_uppercase() {
            words.push(String::new());
        }
        was_lower = character.is_ascii_lowercase();
        if character.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words.pop_if(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    words
}

fn is_switch(option: &str) -> bool {
    words(option).first().is_some_and(|word| is_in(SWITCHES, word))
}

fn is_in(words: &str, word: &str) -> bool {
    words.split_ascii_whitespace().any(|known| known == word)
}

fn is_quote(character: char) -> bool {
    matches!(character, '"' | '\'')
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Whether this is a key of Weights & Biases, or a Git commit: both are 40 hexadecimal digits.
fn is_hex_40(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn starts_with_ignoring_case(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Returns where the first character from `start` on stands that fulfils a condition, or the end of the text.
fn end_of(text: &str, start: usize, is_end: impl FnMut(char) -> bool) -> usize {
    text[start..].find(is_end).map_or(text.len(), |found| start + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks what is shown of a command line, whose arguments are separated by `|`.
    #[track_caller]
    fn check(arguments: &str, expected: &str) {
        let shown = mask_argv(arguments.split('|').map(Text::from));
        assert_eq!(shown.iter().collect::<Vec<_>>().join("|"), expected);
    }

    #[track_caller]
    fn check_stays(arguments: &str) {
        check(arguments, arguments);
    }

    #[test]
    fn values_of_secret_options_and_variables_are_masked() {
        check("serve|--api-key=abc|--port|80", "serve|--api-key=***|--port|80");
        check("serve|--token|abc def|x.py", "serve|--token|***|x.py");
        check("-Djavax.keyStorePassword=a b", "-Djavax.keyStorePassword=***");
        check("env|HF_TOKEN=abc|WANDB_API_KEY=a;b|python", "env|HF_TOKEN=***|WANDB_API_KEY=***|python");
        check("db|--dbPassword|1234|--clientSecret=x", "db|--dbPassword|***|--clientSecret=***");
        check("a|+logger.wandb.api_key=abc", "a|+logger.wandb.api_key=***");
        check(
            "a|--password_2=x|--credentials|y|--basic-auth|me:x",
            "a|--password_2=***|--credentials|***|--basic-auth|***",
        );
        check(
            "sh|-c|HF_TOKEN=abc exec python a.py --token 'x y' -n 2",
            "sh|-c|HF_TOKEN=*** exec python a.py --token '***' -n 2",
        );
        check("a|{\"api_key\": \"x\", \"n\": 2}", "a|{\"api_key\": \"***\", \"n\": 2}");
        check(
            "python|-c|os.environ['HF_TOKEN'] = 'abc'; f(password='x')",
            "python|-c|os.environ['HF_TOKEN'] = '***'; f(password='***')",
        );
        check("wandb|login|0123456789abcdef0123456789abcdef01234567", "wandb|login|***");
        // A program may write its whole command line into its first argument.
        check("python a.py --hf-token abc --lr 1", "python a.py --hf-token *** --lr 1");
    }

    #[test]
    fn headers_and_credentials_in_urls_are_masked() {
        check("curl|-H|Authorization: Bearer abc", "curl|-H|Authorization: Bearer ***");
        check("curl|-H|X-Api-Key:abc", "curl|-H|X-Api-Key:***");
        check("sh|-c|curl -H \"authorization: basic abc\" x", "sh|-c|curl -H \"authorization: basic ***\" x");
        check("a|Bearer abcdefghijklmnop1", "a|Bearer ***");
        check("git|clone|https://me:x@y@host.com/a:b", "git|clone|https://me:***@host.com/a:b");
        check("pip|https://0123456789abcdefghij@host/a", "pip|https://***@host/a");
        check("a|https://h/b?x=1&token=abc&y=2#z", "a|https://h/b?x=1&token=***&y=2#z");
        check("a|https://h/b?sv=1&sig=a%2B", "a|https://h/b?sv=1&sig=***");
        check("a|s3://h/b?X-Amz-Signature=00ff&n=1", "a|s3://h/b?X-Amz-Signature=***&n=1");
    }

    #[test]
    fn tokens_are_recognised_by_their_shape() {
        let body = "Ab3".repeat(12);
        for prefix in ["hf_", "ghp_", "github_pat_", "sk-", "sk-proj-", "glpat-", "nvapi-", "xoxb-", "AKIA", "eyJ"] {
            check(&format!("a|x={prefix}{body},y"), "a|x=***,y");
        }
        check("a|eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.SflKx-_wRJ b", "a|*** b");
    }

    #[test]
    fn arguments_that_only_look_like_secrets_stay() {
        check_stays("python|train.py|--tokenizer|gpt2|--max-tokens|100|--num-key-value-heads|8|--key-frames|4");
        check_stays("a|--keyboard|us|tokenizer.json|--tokenizer=a/b|--max_new_token|12|--eos-token|</s>");
        check_stays("a|--sort-key|loss|data.prompt_key=prompt|--token|7|--use-auth-token|train.py|--auth|none");
        check_stays("a|--password-file|/run/x|--use_auth_token=true|--token|--other|-p|pass|PWD=/home/me");
        check_stays("python|-c|spawn_main(tracker_fd=5, pipe_handle=7)|--multiprocessing-fork");
        check_stays("torchrun|--rdzv-endpoint=host:29500|--rdzv-id|0123456789abcdef0123456789abcdef01234567");
        check_stays("git|ssh://git@host.com/a|https://host/a@b|me@host:/x|uvicorn|app.auth:app|if key == 'a': pass");
        check_stays("basic training|sk-learn-contrib-and-friends-of-it|hf_model_with_a_long_long_name");
        check_stays("a||--token=|--token");
    }

    #[test]
    fn text_that_is_not_ascii_is_kept() {
        check("名前=é|--パス|password=名前|ü hf_é", "名前=é|--パス|password=***|ü hf_é");
    }
}
