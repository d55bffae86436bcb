//! Finds the secrets in URLs: passwords, tokens in the place of a user name, and the paths of
//! webhooks.

use std::ops::Range;

/// URLs whose path is a secret. What follows the text is masked, up to the end of the path.
const SECRET_PATHS: [&str; 22] = [
    "hooks.slack.com/services/",
    "hooks.slack.com/workflows/",
    "hooks.slack.com/triggers/",
    "discord.com/api/webhooks/",
    "discordapp.com/api/webhooks/",
    "hooks.zapier.com/hooks/catch/",
    ".webhook.office.com/webhookb2/",
    "outlook.office.com/webhook/",
    "open.feishu.cn/open-apis/bot/v2/hook/",
    "open.larksuite.com/open-apis/bot/v2/hook/",
    "maker.ifttt.com/trigger/",
    "hc-ping.com/",
    "api.day.app/",
    "sctapi.ftqq.com/",
    "a.rtmp.youtube.com/live2/",
    ".twitch.tv/app/",
    "hook.eu1.make.com/",
    "hook.eu2.make.com/",
    "hook.us1.make.com/",
    "hook.us2.make.com/",
    "events.pagerduty.com/integration/",
    "alert.victorops.com/integrations/generic/",
];

/// URLs with a secret up to the next `/`.
const SECRET_FOLDERS: [&str; 2] = ["api.telegram.org/bot", "conda.anaconda.org/t/"];

/// The shortest last part of the path `/hooks/…` that is a secret.
const LEAST_OF_HOOK: usize = 16;

/// Calls `found` with each secret.
pub(super) fn find(text: &str, mut found: impl FnMut(Range<usize>)) {
    // `jdbc:oracle:thin:user/password@host`.
    if let Some(begin) = text.find("jdbc:oracle:")
        && let Some(end) = text[begin..].find('@').map(|end| begin + end)
        && let Some(slash) = text[begin..end].find('/').map(|slash| begin + slash)
    {
        found(slash + 1..end);
    }
    if !text.contains("://") && !text.contains("hook") {
        return;
    }
    for (offset, _) in text.match_indices("://") {
        if let Some(secret) =
            credentials(text, offset + "://".len()).filter(|secret| !secret.is_empty())
        {
            found(secret);
        }
    }
    for start in SECRET_PATHS {
        for (offset, _) in text.match_indices(start) {
            let begin = offset + start.len();
            found(begin..begin + length_until(&text[begin..], "?#&,;"));
        }
    }
    for start in SECRET_FOLDERS {
        for (offset, _) in text.match_indices(start) {
            let begin = offset + start.len();
            found(begin..begin + length_until(&text[begin..], "/?#"));
        }
    }
    for part in ["/hooks/", "/hook/", "/webhook/", "/webhooks/"] {
        for (offset, _) in text.match_indices(part) {
            let begin = offset + part.len();
            let end = begin + length_until(&text[begin..], "?#&,;");
            let last = text[begin..end]
                .rfind('/')
                .map_or(begin, |slash| begin + slash + 1);
            if end - last >= LEAST_OF_HOOK {
                found(last..end);
            }
        }
    }
}

/// Returns the password in `user:password@host`, and the token in `token@host`.
fn credentials(text: &str, start: usize) -> Option<Range<usize>> {
    /// No login name of a person or of Git is longer.
    const LONGEST_NAME: usize = 16;
    let all = &text[start..start + length_until(&text[start..], "")];
    let authority = &all[..all.find(['/', '?', '#']).unwrap_or(all.len())];
    let offset = authority.rfind('@').or_else(|| {
        // A password with a slash: then the text before is no host with a port.
        let (_, port) = authority.split_once(':')?;
        let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        all.find('@').filter(|_| !is_port)
    })?;
    let user = &all[..offset];
    match user.find(':') {
        Some(colon) => Some(start + colon + 1..start + user.len()),
        None => (user.len() > LONGEST_NAME).then_some(start..start + user.len()),
    }
}

/// Returns the length of the text up to white space, a quote or one of these characters.
fn length_until(text: &str, ends: &str) -> usize {
    let is_end = |character: char| {
        character.is_whitespace()
            || matches!(character, '"' | '\'' | '`' | '<' | '>')
            || ends.contains(character)
    };
    text.find(is_end).unwrap_or(text.len())
}
