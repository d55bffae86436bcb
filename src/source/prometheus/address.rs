//! The address of a Prometheus server, as a person typed it.

use std::net::IpAddr;

use ureq::http::Uri;

use crate::base::text::Text;

/// The base of the URLs of a server, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) is_https: bool,
    /// The host without brackets.
    host: String,
    port: u16,
    /// The path before `/api/v1`; empty or with a slash at its beginning.
    path: String,
}

impl ServerAddress {
    /// Parses an address, which needs no scheme.
    ///
    /// # Errors
    ///
    /// When it is none, or has a password: a sentence, without the address where it may hold one.
    pub(super) fn parse(typed: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is no address of a Prometheus server, such as http://prometheus:9090",
                Text::new(typed)
            )
        };
        let (scheme, rest) = typed.split_once("://").unwrap_or(("http", typed));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(
                "the address of the Prometheus server has a user or a password, which other users see on the \
                 command line: put them into a file for --http.config.file"
                    .to_owned(),
            );
        }
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        if rest.contains(['?', '#']) {
            return Err(wrong());
        }
        let uri: Uri = format!("http://{rest}").parse().map_err(|_| wrong())?;
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let after_brackets = authority.rsplit(']').next().unwrap_or_default();
        if host.is_empty() || after_brackets.contains(':') && uri.port_u16().is_none() {
            return Err(wrong());
        }
        Ok(Self {
            is_https,
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Returns the URL of a path such as `/api/v1/query`.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{}{}{path}", self.target(), self.path)
    }

    /// Returns `HOST:PORT`, with an IPv6 address in brackets.
    pub(super) fn target(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whether the host is the computer that connects.
    pub(super) fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    /// Returns the address to which an answer for this path redirects. `None` where it leads to
    /// another host or another question, or gives encryption up.
    pub(super) fn redirected(&self, path: &str, location: &str) -> Option<Self> {
        let location = if location.starts_with('/') && !location.starts_with("//") {
            let scheme = if self.is_https { "https" } else { "http" };
            format!("{scheme}://{}{location}", self.target())
        } else {
            location.to_owned()
        };
        if !location.contains("://") {
            return None;
        }
        let location = location.split(['?', '#']).next()?.trim_end_matches('/');
        let mut next = Self::parse(location).ok()?;
        next.path.truncate(next.path.strip_suffix(path)?.len());
        let is_safe = next.host.eq_ignore_ascii_case(&self.host)
            && match (self.is_https, next.is_https) {
                (false, true) => true,
                (true, false) => false,
                _ => next.port == self.port,
            };
        is_safe.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_lack_its_scheme_and_have_a_path() {
        for (typed, url, is_loopback) in [
            ("prom:9090", "http://prom:9090/q", false),
            (
                "https://mimir.example/prometheus/",
                "https://mimir.example:443/prometheus/q",
                false,
            ),
            ("HTTP://[::1]:9090", "http://[::1]:9090/q", true),
            ("localhost", "http://localhost:80/q", true),
        ] {
            let address = ServerAddress::parse(typed).unwrap();
            assert_eq!(
                (address.url("/q").as_str(), address.is_loopback()),
                (url, is_loopback)
            );
        }
        for typed in [
            "",
            "ftp://x",
            "http://",
            "http://x/?q=1",
            "a b",
            "x:",
            "x:99999",
        ] {
            assert!(ServerAddress::parse(typed).is_err(), "{typed}");
        }
        let why = ServerAddress::parse("http://me:hunter2@prom:9090").unwrap_err();
        assert!(
            why.contains("--http.config.file") && !why.contains("hunter2"),
            "{why}"
        );
    }

    #[test]
    fn a_redirect_leads_to_the_same_host_and_never_gives_encryption_up() {
        let address = ServerAddress::parse("http://prom:9090").unwrap();
        let next = |location| {
            address
                .redirected("/q", location)
                .map(|next| next.url("/q"))
        };
        assert_eq!(next("/x/q").as_deref(), Some("http://prom:9090/x/q"));
        assert_eq!(
            next("https://prom/q").as_deref(),
            Some("https://prom:443/q")
        );
        for location in [
            "http://other:9090/q",
            "//other/q",
            "/login",
            "q",
            "http://prom:1/q",
            "",
        ] {
            assert_eq!(next(location), None, "{location}");
        }
        let https = ServerAddress::parse("https://prom").unwrap();
        assert_eq!(https.redirected("/q", "http://prom:443/q"), None);
    }
}
