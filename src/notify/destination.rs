//! Where the messages of one notification go: a service, its URL, and what it is told.

use std::net::IpAddr;

use strum::VariantArray;
use ureq::http::Uri;

use super::filter::MessageFilter;
use super::secret::Secret;
use crate::base::text::Text;

/// A service that takes messages over HTTP. Its text is the value of `kind` in a `[notify.NAME]`
/// table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Service {
    /// <https://docs.ntfy.sh/publish/>
    Ntfy,
    /// Incoming webhooks of Slack.
    Slack,
    /// Webhooks of Discord.
    Discord,
    /// Incoming webhooks of Mattermost.
    Mattermost,
    /// A workflow of Microsoft Teams that posts what a webhook receives.
    Teams,
    /// Any server that takes JSON.
    Webhook,
}

impl Service {
    /// Returns the service with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::VARIANTS
            .iter()
            .copied()
            .find(|service| <&str>::from(*service) == name)
    }

    /// Returns the names of all services.
    pub(crate) fn names() -> String {
        let names: Vec<&str> = Self::VARIANTS.iter().map(Into::into).collect();
        names.join(", ")
    }
}

/// Where the messages of one notification go.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    /// The NAME of its `[notify.NAME]` table: all that gputop says of it.
    pub(crate) name: Text,
    pub(crate) service: Service,
    pub(crate) endpoint: Endpoint,
    /// A token that the server asks for.
    pub(crate) token: Option<Secret>,
    /// Whether command lines are sent, too.
    pub(crate) sends_command: bool,
    pub(crate) filter: MessageFilter,
    /// ntfy: the priority from 1 to 5 instead of that of the message.
    pub(crate) priority: Option<u8>,
    /// ntfy: tags, of which some are shown as emoji.
    pub(crate) tags: Vec<String>,
}

/// A URL that gputop may send to.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    url: Secret,
    /// Whether the URL begins with `http:`, which reaches this computer only.
    pub(super) is_plain: bool,
    /// Whether the host of the URL is this computer by its name or address.
    pub(super) is_loopback: bool,
}

impl Endpoint {
    /// Checks a URL: HTTPS, or plain HTTP to this computer.
    ///
    /// # Errors
    ///
    /// When gputop must not send to it: the end of a sentence, without the URL.
    pub(crate) fn new(url: Secret) -> Result<Self, String> {
        let uri: Uri = url
            .expose()
            .parse()
            .map_err(|_| "is no URL: it begins with https://".to_owned())?;
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else {
            return Err("is no URL: it begins with https://".to_owned());
        };
        let is_loopback = is_loopback(host);
        let is_plain = match scheme {
            "https" => false,
            "http" if is_loopback => true,
            "http" => {
                return Err(
                    "begins with http:, which is not encrypted: use https, or an address of this computer"
                        .to_owned(),
                );
            }
            _ => {
                return Err("is no URL that gputop can send to: it begins with https://".to_owned());
            }
        };
        Ok(Self {
            url,
            is_plain,
            is_loopback,
        })
    }

    /// Returns whether the host of the URL is this computer, by its name or address.
    pub(crate) fn is_of_this_computer(&self) -> bool {
        self.is_loopback
    }

    /// Returns the host and the port, for the name of a notification without a table.
    pub(crate) fn host_and_port(&self) -> String {
        let uri: Option<Uri> = self.url().parse().ok();
        let authority = uri.as_ref().and_then(Uri::authority);
        authority.map_or(String::new(), |authority| {
            // A user and a password may stand before the host.
            let text = authority.as_str();
            text.rsplit_once('@')
                .map_or(text, |(_, host)| host)
                .to_owned()
        })
    }

    /// Returns the URL, which must not be printed.
    pub(super) fn url(&self) -> &str {
        self.url.expose()
    }

    /// Splits the URL of an ntfy topic into the URL of the server and the topic.
    ///
    /// # Errors
    ///
    /// When the URL has no topic.
    pub(crate) fn split_topic(&self) -> Result<(String, String), String> {
        let (rest, query) = match self.url().split_once('?') {
            Some((rest, query)) => (rest, format!("?{query}")),
            None => (self.url(), String::new()),
        };
        let (_, path) = rest.split_once("://").unwrap_or(("", rest));
        let topic = path
            .trim_end_matches('/')
            .split_once('/')
            .and_then(|(_, path)| path.rsplit('/').next())
            .filter(|topic| !topic.is_empty())
            .ok_or_else(|| "has no topic: it ends as in https://ntfy.sh/my-topic".to_owned())?;
        let server = rest.trim_end_matches('/');
        let server = &server[..server.len() - topic.len()];
        Ok((format!("{server}{query}"), topic.to_owned()))
    }
}

/// Returns whether a host of a URL is this computer by its name or address. A name may still lead
/// elsewhere, so the addresses are checked again before a connection is made.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Result<Endpoint, String> {
        Endpoint::new(Secret::new(url).unwrap())
    }

    #[test]
    fn only_https_and_this_computer_are_allowed() {
        for url in [
            "https://hooks.example/services/T0",
            "https://10.0.0.1:8443/x?token=y",
            "http://127.0.0.1:80/x",
            "http://127.8.8.8/x",
            "http://[::1]:8080/x",
            "http://LOCALHOST/x",
        ] {
            assert!(endpoint(url).is_ok(), "{url}");
        }
        for url in [
            "http://hooks.example/hunter2",
            "http://10.0.0.1/hunter2",
            "http://[::2]/hunter2",
            "http://localhost.example/hunter2",
            "http://127.0.0.1.example/hunter2",
            "http://0.0.0.0/hunter2",
            "ftp://127.0.0.1/hunter2",
            "file:///hunter2",
            "hooks.example/hunter2",
            "/hunter2",
            "https:///hunter2",
        ] {
            let why = endpoint(url).unwrap_err();
            assert!(!why.contains("hunter2"), "{url}: {why}");
        }
    }

    #[test]
    fn the_url_of_a_topic_is_split() {
        let split = |url: &str| endpoint(url).unwrap().split_topic().ok();
        let expected = |server: &str, topic: &str| Some((server.to_owned(), topic.to_owned()));
        assert_eq!(
            split("https://ntfy.sh/my-topic"),
            expected("https://ntfy.sh/", "my-topic")
        );
        assert_eq!(
            split("http://localhost:80/base/my-topic/?auth=x"),
            expected("http://localhost:80/base/?auth=x", "my-topic")
        );
        assert_eq!(split("https://ntfy.sh"), None);
        assert_eq!(split("https://ntfy.sh/"), None);
    }
}
