//! Finds the passwords of logins in the arguments of programs that the table of programs does not
//! have: `-u me -p …`, `set api_token …`, `me:…@host`, `/password:…`. Such a value counts only if
//! it has letters and digits.

use std::ops::Range;

use super::word::Word;
use super::{commands, names};

/// Programs whose `-u` and `-p` are a user and a partition, a port or a process.
const WITHOUT_LOGINS: &str = "srun sbatch salloc squeue sinfo scancel sacct sacctmgr scontrol sprio sshare sstat sreport smap sview \
    scrontab sattach bsub bjobs qsub qstat condor_q ps top htop pidstat lsof strace perf docker podman nerdctl ssh scp sftp \
    psql pg_dump pg_restore mysql mysqldump mariadb tar cp mkdir find nmap iperf iperf3 nc socat sudo doas su rsync pytest";
/// Options that name the user of a login.
const USER_OPTIONS: &str = "-u -U --user --username --login -l -user -username";
/// Options that may name its password.
const PASSWORD_OPTIONS: &str = "-p -P -pw -pass";
/// Options that may name a secret after `login`.
const LOGIN_OPTIONS: &str = "-p -k --pw --sk";
/// The options of Windows that contain a password.
const WINDOWS_OPTIONS: [&str; 4] = ["/password:", "/pass:", "/passwd:", "/pwd:"];
/// Words after which a name and its value follow.
const SETTERS: &str = "set put SET config:set";

/// Calls `found` with the place of a word, the secret in it, and the place of the word that names
/// it.
pub(super) fn find(
    words: &[Word<'_>],
    programs: &[usize],
    mut found: impl FnMut(usize, Range<usize>, usize),
) {
    let whole = |place: usize| 0..words[place].text.len();
    let text = |place: usize| &*words[place].text;
    let first = programs.last().map_or(0, |program| program + 1);
    let is_excluded = words
        .iter()
        .any(|word| names::is_in(WITHOUT_LOGINS, commands::program_name(&word.text)));
    let (mut has_user, mut has_login) = (false, false);
    for place in first..words.len() {
        let next =
            (place + 1 < words.len() && !text(place + 1).starts_with('-')).then_some(place + 1);
        let is_login = has_user
            && !is_excluded
            && names::is_in(PASSWORD_OPTIONS, text(place))
            && next.is_some_and(|next| has_mark(text(next)))
            || has_login && names::is_in(LOGIN_OPTIONS, text(place))
            || is_user_to_add(words, place);
        let is_named = is_login || is_set(words, place) || is_setter_of_password(text(place));
        let is_any = is_set(words, place)
            || has_login && names::is_in(LOGIN_OPTIONS, text(place))
            || is_user_to_add(words, place);
        let is_value = |next: &usize| is_password(text(*next)) || is_any && is_plain(text(*next));
        if let Some(next) = next.filter(|_| is_named).filter(is_value) {
            found(next, whole(next), place);
        }
        has_login |= text(place) == "login";
        let is_user = !is_excluded && names::is_in(USER_OPTIONS, text(place));
        if let Some(next) = next.filter(|_| is_user)
            && let Some(secret) = after_colon(text(next), 0)
        {
            found(next, secret, place);
        }
        has_user |= next.is_some() && names::is_in(USER_OPTIONS, text(place));
        if let Some(secret) = before_host(text(place))
            .or_else(|| windows_option(text(place)))
            .or_else(|| after_user(text(place)))
        {
            found(place, secret, place);
        }
    }
}

/// Whether this is the name of a secret after `set`.
fn is_set(words: &[Word<'_>], place: usize) -> bool {
    let name = &*words[place].text;
    place > 1
        && names::is_in(SETTERS, &words[place - 1].text)
        && is_name(name)
        && names::names_secret(name)
}

/// Whether this is the name of a user to add, after which a password follows: `users add bob …`.
fn is_user_to_add(words: &[Word<'_>], place: usize) -> bool {
    place > 2
        && is_name(&words[place].text)
        && names::is_in("user users", &words[place - 2].text)
        && names::is_in("add create", &words[place - 1].text)
}

/// Whether this word is a command that sets a password: `reset-admin-password`.
fn is_setter_of_password(word: &str) -> bool {
    ["set", "reset", "change", "update"]
        .iter()
        .any(|verb| word.starts_with(verb))
        && ["password", "passwd"]
            .iter()
            .any(|ending| word.ends_with(ending))
        && is_name(word)
}

fn is_name(word: &str) -> bool {
    word.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte))
        && !word.starts_with(['-', '/'])
}

fn is_plain(value: &str) -> bool {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    !is_number
        && !names::is_path(value)
        && !value.contains([' ', '='])
        && !names::is_harmless_value(value)
}

/// Whether a value can be a password, and no path, address or name of one word.
fn is_password(value: &str) -> bool {
    is_plain(value) && names::is_mixed(value) && !value.contains("://")
}

/// Whether a value has a capital letter or a mark, as names of partitions and files seldom have.
fn has_mark(value: &str) -> bool {
    value
        .bytes()
        .any(|byte| byte.is_ascii_uppercase() || b"!@$%&*?#".contains(&byte))
}

/// Returns the password in `me:password@host`, without a scheme.
fn before_host(word: &str) -> Option<Range<usize>> {
    let end = word
        .rfind('@')
        .filter(|_| !word.contains("://") && !word.contains([' ', '=', ',']))?;
    // The password may be behind a method and a user, as in `:pserver:me:password@host`.
    let colon = word[..end].rfind(':').filter(|colon| *colon > 0)?;
    let (user, password, host) = (&word[..colon], &word[colon + 1..end], &word[end + 1..]);
    let is_host = host.starts_with(|first: char| first.is_ascii_alphabetic())
        && !host.starts_with("sha256")
        || host.split('.').count() == 4;
    let is_certain = has_mark(password) || host.contains('.');
    (is_host
        && is_certain
        && !user.contains('@')
        && user.matches('/').count() <= 1
        && names::is_mixed(password))
    .then_some(colon + 1..end)
}

/// Returns the password in `user=me:password`.
fn after_user(word: &str) -> Option<Range<usize>> {
    let start = ["user=", "userpwd="]
        .into_iter()
        .find(|start| word.starts_with(start))?
        .len();
    after_colon(word, start)
}

/// Returns the password in `me:password`, which begins at a byte of a word.
fn after_colon(word: &str, start: usize) -> Option<Range<usize>> {
    let colon = start + word[start..].find(':').filter(|colon| *colon > 0)?;
    is_password(&word[colon + 1..]).then_some(colon + 1..word.len())
}

fn windows_option(word: &str) -> Option<Range<usize>> {
    let lower = word.get(..12.min(word.len()))?.to_ascii_lowercase();
    let option = WINDOWS_OPTIONS
        .iter()
        .find(|option| lower.starts_with(**option))?;
    Some(option.len()..word.len())
}
