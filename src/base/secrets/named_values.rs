//! Finds values after names within a text: `name=value`, `"name": "value"`, `Name: value`.

use std::ops::Range;

use super::names;

/// Parameters of signed URLs, besides those with a secret name.
const URL_SIGNATURES: &str = "sig signature x-amz-signature x-amz-credential x-goog-signature x-goog-credential awsaccesskeyid";
/// Parameters of URLs that are secrets when they look random.
const URL_KEYS: &str = "appid app_id ak sk userkey code ticket sid";
/// Words that may stand before the value of the header `Authorization`.
const SCHEMES: [&str; 11] = [
    "Bearer ",
    "Basic ",
    "Token ",
    "Digest ",
    "Negotiate ",
    "ApiKey ",
    "Key ",
    "GenieKey ",
    "Bot ",
    "OAuth ",
    "AWS4-HMAC-SHA256 ",
];
/// Headers with a secret whose names do not end in one.
const SECRET_HEADERS: &str = "x-auth x-api-auth x-jfrog-art-api x-hasura-admin-secret x-plex-token x-vault-token x-gitlab-token private-token \
    x-goog-api-key x-functions-key ocp-apim-subscription-key set-cookie";

/// A name with a value that is a secret.
pub(super) struct NamedValue {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}

/// Finds the values of names that name secrets. `is_argument`: the text is one assignment, whose
/// value may contain anything.
pub(super) fn find(text: &str, is_argument: bool, mut found: impl FnMut(NamedValue)) {
    if !text.contains(['=', ':']) {
        return;
    }
    let mut offset = 0;
    while let Some(start) = text[offset..]
        .bytes()
        .position(is_name_byte)
        .map(|found| offset + found)
    {
        let end = text[start..]
            .bytes()
            .position(|byte| !is_name_byte(byte))
            .map_or(text.len(), |found| start + found);
        offset = end;
        let name = start..end;
        if let Some((value, is_certain)) = value_after(text, &name, is_argument)
            && !value.is_empty()
            && !is_variable(text, &name, &value)
            && is_secret(text, &name, &text[value.clone()])
            && (is_certain || names::is_random(&text[value.clone()]))
        {
            offset = value.end;
            found(NamedValue { name, value });
        }
    }
}

/// Returns where the value of an argument begins that is one assignment: `--option=VALUE`.
pub(super) fn start_of_value(text: &str) -> Option<usize> {
    let equals = text.find('=')?;
    text[..equals]
        .bytes()
        .all(is_name_byte)
        .then_some(equals + 1)
}

/// Whether this can be a part of a name.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn is_secret(text: &str, name: &Range<usize>, value: &str) -> bool {
    let word = &text[name.clone()];
    let is_known = |list| names::is_in(list, &word.to_ascii_lowercase());
    let is_header_name =
        || is_known(SECRET_HEADERS) || word.contains('-') && names::is_secret_header(word);
    let is_header = name.start == 0 && text[name.end..].starts_with(':') && is_header_name();
    let is_signature = is_parameter(text, name) && is_known(URL_SIGNATURES);
    let is_key = is_parameter(text, name) && is_known(URL_KEYS) && names::is_random(value);
    (is_header || is_signature || is_key) && !names::is_reference(value)
        || names::is_secret(word, value)
}

fn is_header_name(word: &str) -> bool {
    ["authorization", "cookie"]
        .iter()
        .any(|name| word.eq_ignore_ascii_case(name))
}

/// Whether the value is a variable of code with the same name: `f(password=password)`.
fn is_variable(text: &str, name: &Range<usize>, value: &Range<usize>) -> bool {
    text[..name.start].ends_with(['(', ' ', ','])
        && text[name.clone()] == text[value.clone()]
        && text[value.end..].starts_with([')', ','])
}

/// Whether the name is that of a parameter of a URL or a form.
fn is_parameter(text: &str, name: &Range<usize>) -> bool {
    text[..name.start].ends_with(['?', '&'])
}

/// How a value ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// With the text.
    Text,
    /// At the closing quote.
    Quote(char),
    /// Before the next parameter, or one of the characters that end a word.
    Character(Option<char>),
}

/// Returns the value of a name, and whether the text before shows that this is a name.
fn value_after(text: &str, name: &Range<usize>, is_argument: bool) -> Option<(Range<usize>, bool)> {
    let word = &text[name.clone()];
    let before = &text[..name.start];
    // `A=…`, `--opt=A=…`.
    let is_first =
        before.is_empty() || before.ends_with('=') && !before.contains(char::is_whitespace);
    let after = text[name.end..].trim_start_matches(['"', '\'', ']', '}', '\\']);
    let is_quoted_name = after.len() < text.len() - name.end;
    let end = match before.chars().next_back() {
        Some('?' | '&') => End::Character(Some('&')),
        Some(separator @ (',' | ';')) => End::Character(Some(separator)),
        _ => End::Character(None),
    };
    if let Some(value) = after
        .strip_prefix('=')
        .filter(|value| !value.starts_with(['=', '>']))
    {
        let is_whole = is_first
            && (is_argument || word.starts_with('-') || !text.contains(char::is_whitespace));
        // Code, or the text `"name="`.
        let is_no_value = !is_whole && value.starts_with(['{', '[', '('])
            || !is_quoted_name && is_quoted(before, value);
        return (!is_no_value).then(|| {
            (
                value_range(text, value, if is_whole { End::Text } else { end }),
                true,
            )
        });
    }
    // `name => "value"`.
    if let Some(value) = after.trim_start().strip_prefix("=>").map(str::trim_start) {
        return value
            .starts_with(is_quote)
            .then(|| (value_range(text, value, end), true));
    }
    // `name = "value"`.
    if let Some(value) = after.trim_start().strip_prefix('=').map(str::trim_start) {
        return value
            .starts_with(is_quote)
            .then(|| (value_range(text, value, end), true));
    }
    // `"name": "value"`, `Name: value`, `x-name:value`, but not `module.name:function`.
    let value = after
        .strip_prefix(':')
        .filter(|value| !value.starts_with("//"))?;
    let is_start = before.is_empty() || before.ends_with(['=', '"', '\'']);
    let is_header = is_start
        && (value.starts_with(' ')
            || word.contains(['-', '_'])
            || is_header_name(word)
            || scheme_of(value).is_some());
    let value = value.trim_start();
    if value.starts_with(['{', '[']) || !is_quoted_name && is_quoted(before, value) {
        return None;
    }
    if is_quoted_name {
        return Some((value_range(text, value, end), true));
    }
    // `{user: me, password: value}`.
    let is_field = before.trim_end().ends_with(['{', ',', '('])
        && [": ", ":\"", ":'"]
            .iter()
            .any(|colon| text[name.end..].starts_with(colon));
    let is_rest = before.is_empty() || before.ends_with('=') && is_first;
    (is_header || is_field).then(|| {
        let range = value_range(text, value, if is_rest { End::Text } else { end });
        let is_certain =
            is_header || value.starts_with(is_quote) || names::is_mixed(&text[range.clone()]);
        (range, is_certain)
    })
}

/// Whether quotes stand around the text between these two texts.
fn is_quoted(before: &str, after: &str) -> bool {
    before
        .chars()
        .next_back()
        .is_some_and(|mark| is_quote(mark) && after.starts_with(mark))
}

/// Returns the range of the value that a rest of the text begins with, without quotes and without
/// the scheme of a header.
fn value_range(text: &str, value: &str, end: End) -> Range<usize> {
    let unescaped = Some(value.trim_start_matches('\\'))
        .filter(|rest| end != End::Text && rest.starts_with(is_quote));
    let unescaped = unescaped.unwrap_or(value);
    let quote = unescaped
        .chars()
        .next()
        .filter(|mark| end != End::Text && is_quote(*mark));
    let end = quote.map_or(end, End::Quote);
    let inner = &unescaped[quote.map_or(0, char::len_utf8)..];
    let scheme = scheme_of(inner).map_or(0, str::len);
    let start = text.len() - inner.len() + scheme;
    let is_end = |character: char| match end {
        End::Text => false,
        End::Quote(quote) => character == quote || character == '\\',
        End::Character(separator) => {
            is_quote(character)
                || character.is_whitespace()
                || character == char::REPLACEMENT_CHARACTER
                || separator.map_or(matches!(character, ',' | ')' | ';' | '}'), |separator| {
                    character == separator
                })
                || separator == Some('&') && character == '#'
        }
    };
    start..start + text[start..].find(is_end).unwrap_or(text.len() - start)
}

/// Returns the word that may stand before the value of the header `Authorization`, if the text
/// begins with one.
fn scheme_of(text: &str) -> Option<&'static str> {
    let is_here = |scheme: &&&str| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    SCHEMES.iter().find(is_here).copied()
}

fn is_quote(character: char) -> bool {
    matches!(character, '"' | '\'')
}

/// Finds the values of `{"name": "DB_PASSWORD", "value": "…"}`.
pub(super) fn find_in_pairs(text: &str, mut found: impl FnMut(Range<usize>)) {
    let mut texts = QuotedTexts {
        text,
        offset: 0,
        end: text.len(),
    }
    .peekable();
    let mut is_secret = false;
    while let Some(key) = texts.next() {
        let is_key = text[key.end..]
            .trim_start_matches(['"', '\'', ' '])
            .starts_with(':');
        let Some(value) = texts.peek().cloned().filter(|_| is_key) else {
            continue;
        };
        match text[key].to_ascii_lowercase().as_str() {
            "name" | "key" => is_secret = names::names_secret(&text[value]),
            "value" if is_secret => found(value),
            _ => {}
        }
    }
}

/// Calls of which one text is a password, and the number of that text, counted from 0: `auth=("me",
/// "…")`.
const LOGIN_CALLS: [(&str, usize); 9] = [
    ("auth=(", 1),
    ("auth = (", 1),
    ("BasicAuth(", 1),
    (".login(", 1),
    (".auth(", 1),
    ("create_user(", 2),
    ("create_superuser(", 2),
    ("PDO(", 2),
    ("DBI->connect(", 2),
];

/// Finds the passwords in calls of programs in an argument, as in `python -c`, and those that a
/// script of `expect` sends.
pub(super) fn find_in_calls(text: &str, mut found: impl FnMut(Range<usize>)) {
    /// The question after which a script sends a password: "Password:".
    const QUESTION: &str = "assword";
    for (offset, _) in text.match_indices(QUESTION) {
        const SEND: &str = "send ";
        let Some(begin) = text[offset..]
            .find(SEND)
            .map(|found| offset + found + SEND.len())
        else {
            continue;
        };
        let sent = text[begin..].trim_start_matches(['-', ' ', '"', '\'', '{']);
        let length = sent.find(['\\', '"', '\'', '}', ';']).unwrap_or(sent.len());
        found(text.len() - sent.len()..text.len() - sent.len() + length);
    }
    for (call, number) in LOGIN_CALLS {
        for (offset, _) in text.match_indices(call) {
            let begin = offset + call.len();
            let end = text[begin..]
                .find(')')
                .map_or(text.len(), |end| begin + end);
            QuotedTexts {
                text,
                offset: begin,
                end,
            }
            .nth(number)
            .into_iter()
            .for_each(&mut found);
        }
    }
    // `os.putenv("HF_TOKEN", "…")`.
    let mut texts = QuotedTexts {
        text,
        offset: 0,
        end: text.len(),
    }
    .peekable();
    while let Some(name) = texts.next() {
        let is_first = text[..name.start - 1].ends_with('(');
        let is_setter = is_first && is_setter(&text[..name.start - 2]);
        let is_secret = is_setter && names::names_secret(&text[name.clone()]);
        let value = texts.peek().filter(|value| {
            is_secret
                && text[name.end + 1..value.start - 1].trim() == ","
                && !text[(*value).clone()].is_empty()
        });
        value.cloned().into_iter().for_each(&mut found);
    }
    for (offset, call) in text.match_indices("login(") {
        let begin = offset + call.len();
        let end = text[begin..]
            .find(')')
            .map_or(text.len(), |end| begin + end);
        let texts: Vec<Range<usize>> = QuotedTexts {
            text,
            offset: begin,
            end,
        }
        .collect();
        let is_key = |secret: &Range<usize>| text[begin..secret.start - 1].ends_with("key=");
        let is_only = texts.len() == 1 && !text[begin..end].contains('=');
        let is_token = |secret: &Range<usize>| !text[secret.clone()].contains(['/', ' ', '@', '.']);
        texts
            .into_iter()
            .filter(|secret| is_key(secret) || is_only && is_token(secret))
            .for_each(&mut found);
    }
}

/// Whether a call that begins after this text sets a value: `os.putenv`, `environ.setdefault`.
fn is_setter(before: &str) -> bool {
    let is_in_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let call = before
        .rsplit(|character| !is_in_name(character))
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    ["set", "put", "add", "header", "config"]
        .iter()
        .any(|verb| call.contains(verb))
}

/// Finds the passwords in statements of SQL: `IDENTIFIED BY '…'`, `PASSWORD '…'`, `SET PASSWORD … =
/// '…'`, `PRAGMA key = '…'`.
pub(super) fn find_in_sql(text: &str, mut found: impl FnMut(Range<usize>)) {
    if !text.contains(is_quote) || !text.contains(' ') {
        return;
    }
    let lower = text.to_ascii_lowercase();
    for (keyword, before_text) in [
        ("identified", "by "),
        ("password ", ""),
        ("set password", "= "),
        ("set password", "="),
        ("pragma key", "="),
        ("secret ", ""),
        (" password(", ""),
        ("=password(", ""),
        ("securestring ", ""),
    ] {
        for (offset, _) in lower.match_indices(keyword) {
            let rest = &lower[offset + keyword.len()..];
            let Some(begin) = rest
                .find(before_text)
                .map(|begin| offset + keyword.len() + begin + before_text.len())
            else {
                continue;
            };
            let is_near = text[begin..]
                .trim_start_matches([' ', '\\'])
                .starts_with(is_quote);
            let secret = QuotedTexts {
                text,
                offset: begin,
                end: text.len(),
            }
            .next()
            .filter(|_| is_near);
            if let Some(secret) = secret {
                found(secret);
            }
        }
    }
}

/// The texts in quotes within a range.
struct QuotedTexts<'a> {
    text: &'a str,
    offset: usize,
    end: usize,
}

impl Iterator for QuotedTexts<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.text.get(self.offset..self.end)?;
        let open = rest.find(is_quote)?;
        let quote = rest[open..].chars().next()?;
        let begin = self.offset + open + 1;
        let end = begin + self.text[begin..].find(quote)?;
        self.offset = end + 1;
        Some(begin..end)
    }
}
