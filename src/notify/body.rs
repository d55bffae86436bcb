//! The bodies of requests, as the documentation of each service wants them.
//!
//! Names of processes, jobs and hosts are untrusted: whatever stands in them, a service shows it as
//! text. It calls nobody, formats nothing and hides no address behind other words.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::destination::{Destination, Service};
use super::message::{Message, Urgency};
use crate::base::text::Text;

/// The version of the body of a `webhook`. Names may be added to it; none changes or goes.
const WEBHOOK_VERSION: u32 = 1;

/// The longest text of a message in characters, or in bytes where a service counts them. Discord
/// allows 2000, ntfy 4096, Mattermost 4000 and Slack recommends 4000.
const LONGEST: usize = 1900;

/// The longest sentence and the longest fact in bytes, before characters are escaped.
const LONGEST_SENTENCE: usize = 1000;
const LONGEST_FACT: usize = 250;

/// Invisible: keeps a service from reading a word as a mention.
const ZERO_WIDTH_SPACE: char = '\u{200B}';

/// Returns the body of the request that sends a message.
///
/// # Errors
///
/// When the URL of the destination does not suit its service: the end of a sentence, without the
/// URL.
pub(super) fn body(message: &Message, to: &Destination) -> Result<Value, String> {
    Ok(match to.service {
        Service::Ntfy => ntfy(message, to)?,
        // https://docs.slack.dev/messaging/formatting-message-text: three characters are escaped.
        // Without `mrkdwn`, no other has a meaning.
        Service::Slack => json!({
            "text": text(message, to, slack),
            "mrkdwn": false,
            "unfurl_links": false,
            "unfurl_media": false,
        }),
        // https://docs.discord.com/developers/resources/webhook#execute-webhook
        Service::Discord => json!({
            "content": text(message, to, discord),
            "allowed_mentions": { "parse": [] },
            // Shows no preview of an address.
            "flags": 4,
        }),
        // https://developers.mattermost.com/integrate/webhooks/incoming/
        Service::Mattermost => json!({ "text": text(message, to, mattermost) }),
        Service::Teams => teams(message, to),
        Service::Webhook => webhook(message, to),
    })
}

/// <https://docs.ntfy.sh/publish/#publish-as-json>: unlike headers, JSON can hold any letter. ntfy
/// formats nothing unless a message says that it is Markdown.
fn ntfy(message: &Message, to: &Destination) -> Result<Value, String> {
    let (_, topic) = to.endpoint.split_topic()?;
    let (priority, tag) = match message.urgency() {
        Urgency::Urgent => (5, "rotating_light"),
        Urgency::Warning => (4, "warning"),
        Urgency::Info => (3, "information_source"),
    };
    let tags = if to.tags.is_empty() {
        vec![tag]
    } else {
        to.tags.iter().map(String::as_str).collect()
    };
    Ok(json!({
        "topic": topic,
        "title": cut(Text::new(message.title()).as_str(), 200),
        "message": text(message, to, plain),
        "priority": to.priority.unwrap_or(priority),
        "tags": tags,
    }))
}

/// An Adaptive Card, which a workflow posts: <https://learn.microsoft.com/connectors/teams/>. A
/// `TextRun` has no Markdown, unlike a `TextBlock`.
fn teams(message: &Message, to: &Destination) -> Value {
    let line = |text: &str, weight: &str| {
        json!({
            "type": "RichTextBlock",
            "inlines": [{ "type": "TextRun", "text": text, "weight": weight }],
        })
    };
    let mut lines = vec![line(
        &cut(Text::new(&message.sentence).as_str(), LONGEST_SENTENCE),
        "bolder",
    )];
    for (name, value) in message.sent_facts(to.sends_command) {
        let fact = format!("{name}: {}", cut(value.as_str(), LONGEST_FACT));
        lines.push(line(&fact, "default"));
    }
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.2",
                "body": lines,
            },
        }],
    })
}

/// gputop's own body. Facts that are not known are absent.
fn webhook(message: &Message, to: &Destination) -> Value {
    let mut body = Map::new();
    body.insert("version".to_owned(), WEBHOOK_VERSION.into());
    body.insert("kind".to_owned(), message.kind.into());
    body.insert(
        "phase".to_owned(),
        <&'static str>::from(message.phase).into(),
    );
    let sentence = Text::new(&message.sentence);
    body.insert("sentence".to_owned(), sentence.as_str().into());
    for (name, value) in message.sent_facts(to.sends_command) {
        body.insert(name.to_lowercase(), value.as_str().into());
    }
    body.into()
}

/// Returns the sentence and the facts as lines. `escape` adds one character as the service shows it.
fn text(message: &Message, to: &Destination, escape: fn(char, &mut String)) -> String {
    let mut plain = cut(Text::new(&message.sentence).as_str(), LONGEST_SENTENCE);
    for (name, value) in message.sent_facts(to.sends_command) {
        let _infallible = write!(plain, "\n{name}: {}", cut(value.as_str(), LONGEST_FACT));
    }
    let mut escaped = String::new();
    for character in plain.chars() {
        let before = escaped.len();
        escape(character, &mut escaped);
        if escaped.len() > LONGEST {
            escaped.truncate(before);
            escaped.push('…');
            break;
        }
    }
    escaped
}

/// Returns a text of at most so many bytes, which ends in an ellipsis if it was longer.
fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let end = (0..=longest)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or_default();
    format!("{}…", &text[..end])
}

fn plain(character: char, text: &mut String) {
    text.push(character);
}

fn slack(character: char, text: &mut String) {
    match character {
        '&' => text.push_str("&amp;"),
        '<' => text.push_str("&lt;"),
        '>' => text.push_str("&gt;"),
        other => text.push(other),
    }
}

/// A backslash takes its meaning from any punctuation.
fn discord(character: char, text: &mut String) {
    if r"\`*_~|<>#[]@".contains(character) {
        text.push('\\');
    }
    text.push(character);
}

/// A backslash takes its meaning from punctuation, but not from a mention. Mattermost makes links
/// and mentions of `<…>`, as Slack does, before it reads Markdown: no backslash prevents that.
fn mattermost(character: char, text: &mut String) {
    match character {
        '<' => text.push('‹'),
        '>' => text.push('›'),
        '@' => text.extend([character, ZERO_WIDTH_SPACE]),
        // `~` names a channel.
        '~' => text.extend(['\\', character, ZERO_WIDTH_SPACE]),
        _ if r"\`*_|#[]&".contains(character) => text.extend(['\\', character]),
        other => text.push(other),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use strum::VariantArray;

    use super::*;
    use crate::notify::destination::Endpoint;
    use crate::notify::filter::MessageFilter;
    use crate::notify::message::Phase;
    use crate::notify::secret::Secret;

    fn destination(service: Service) -> Destination {
        let url = Secret::new("https://example.org/topic").unwrap();
        Destination {
            name: "phone".into(),
            service,
            endpoint: Endpoint::new(url).unwrap(),
            token: None,
            sends_command: false,
            filter: MessageFilter::default(),
            priority: None,
            tags: Vec::new(),
        }
    }

    fn message(sentence: &str) -> Message {
        Message {
            kind: "leak",
            phase: Phase::Begins,
            gpu: Some("0".to_owned()),
            job: Some("42 名前".to_owned()),
            user: Some("zoe".to_owned()),
            pid: Some(4711),
            command: Some("python train.py --token ***".to_owned()),
            ..Message::test("node1".to_owned(), sentence.to_owned())
        }
    }

    /// Returns the schema that was made from the documentation of a service.
    fn schema(service: Service) -> Value {
        let file = format!(
            "{}/tests/data/notify/{}.json",
            env!("CARGO_MANIFEST_DIR"),
            <&str>::from(service)
        );
        let text = fs::read_to_string(Path::new(&file)).expect(&file);
        serde_json::from_str(&text).expect(&file)
    }

    fn strings(value: &Value) -> Vec<&str> {
        match value {
            Value::String(text) => vec![text],
            Value::Array(values) => values.iter().flat_map(strings).collect(),
            Value::Object(fields) => fields.values().flat_map(strings).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn each_body_suits_the_documentation_of_its_service() {
        let long = "x*<@".repeat(3000);
        for service in Service::VARIANTS {
            let schema = jsonschema::validator_for(&schema(*service)).unwrap();
            let mut to = destination(*service);
            for sentence in ["GPU 0 (名前) leaks 2.0 GiB/h", "", &long, "\u{202E}\n\0"] {
                for sends_command in [false, true] {
                    to.sends_command = sends_command;
                    let body = body(&message(sentence), &to).unwrap();
                    let errors: Vec<String> = schema
                        .iter_errors(&body)
                        .map(|error| format!("{}: {error}", error.instance_path))
                        .collect();
                    assert_eq!(errors, [""; 0], "{service:?}: {body}");
                    let has = |word: &str| strings(&body).iter().any(|text| text.contains(word));
                    assert!(!has("zoe") && !has("4711"), "{service:?}: {body}");
                    // Discord's escapes of a long sentence leave no room for facts.
                    if sentence.len() < 1000 {
                        let found = (has("node1"), has("train"));
                        assert_eq!(found, (true, sends_command), "{service:?}: {body}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_name_calls_people_or_hides_a_link() {
        let hostile = "<!channel> @here @everyone <@U1> <https://e.example|ok> [ok](https://e.example) **b** `c` ~town";
        let body = |service| body(&message(hostile), &destination(service)).unwrap();
        let slack = body(Service::Slack);
        assert_eq!(slack["mrkdwn"], false);
        let text = slack["text"].as_str().unwrap();
        assert!(!text.contains('<') && !text.contains('>'), "{text}");
        assert!(text.contains("&lt;!channel&gt; @here"), "{text}");

        let discord = body(Service::Discord);
        assert_eq!(discord["allowed_mentions"], json!({ "parse": [] }));
        let text = discord["content"].as_str().unwrap();
        assert!(text.contains(r"\[ok\](https://e.example)"), "{text}");
        assert!(
            text.contains(r"\*\*b\*\*") && text.contains(r"\@everyone"),
            "{text}"
        );

        let mattermost = body(Service::Mattermost);
        let text = mattermost["text"].as_str().unwrap();
        assert!(!text.contains('<') && !text.contains('>'), "{text}");
        for word in ["@here", "@everyone", "@U1", "[ok]", "ok](", "**", "~town"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
        // Nothing of a card is a TextBlock or a FactSet, whose texts are Markdown.
        let teams = body(Service::Teams).to_string();
        assert!(
            !teams.contains("\"TextBlock\"") && !teams.contains("FactSet"),
            "{teams}"
        );
        assert!(!teams.contains("entities"), "{teams}");
        assert_eq!(body(Service::Ntfy).get("markdown"), None);
    }

    #[test]
    fn ntfy_has_a_priority_and_tags_by_urgency_or_by_the_table() {
        let mut to = destination(Service::Ntfy);
        let sent = body(&message("a"), &to).unwrap();
        assert_eq!(
            (&sent["priority"], &sent["tags"], &sent["title"]),
            (
                &json!(4),
                &json!(["warning"]),
                &json!("gputop: leak on node1")
            )
        );
        to.priority = Some(2);
        to.tags = vec!["gpu".to_owned()];
        let sent = body(&message("a"), &to).unwrap();
        assert_eq!(
            (&sent["priority"], &sent["tags"]),
            (&json!(2), &json!(["gpu"]))
        );
    }

    #[test]
    fn the_body_of_a_webhook_has_a_version() {
        let sent = body(&message("GPU 0 leaks"), &destination(Service::Webhook)).unwrap();
        assert_eq!(
            sent,
            json!({
                "version": 1, "kind": "leak", "phase": "begins", "sentence": "GPU 0 leaks",
                "host": "node1", "gpu": "0", "job": "42 名前",
            })
        );
    }
}
