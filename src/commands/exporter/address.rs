//! Where the exporter listens, and who may read it there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The usual port. Those from 9100 to 9999 are given to other exporters:
/// <https://github.com/prometheus/prometheus/wiki/Default-port-allocations>.
const PORT: u16 = 19_400;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// A socket file that only the user may open.
    Unix(PathBuf),
    Network(SocketAddr),
}

impl Default for ListenAddress {
    fn default() -> Self {
        Self::Network((Ipv4Addr::LOCALHOST, PORT).into())
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(
                    "a path must follow `unix:`, such as `unix:/run/user/1000/gputop.sock`"
                        .to_owned(),
                )
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        // The name may stand for other addresses in a resolver's configuration.
        let numeric = text
            .strip_prefix("localhost:")
            .map(|port| format!("{}:{port}", Ipv4Addr::LOCALHOST));
        let numeric = numeric.as_deref().unwrap_or(text);
        numeric.parse().map(Self::Network).map_err(|_| {
            format!(
                "`{text}` is no address: write an IP address and a port, such as 127.0.0.1:{PORT}, or \
                 `unix:` and a path"
            )
        })
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
            Self::Network(address) => address.fmt(out),
        }
    }
}

impl ListenAddress {
    /// The address, if only processes of this host reach it, of any user.
    pub(super) fn loopback(&self) -> Option<IpAddr> {
        match self {
            Self::Network(address) => {
                Some(address.ip()).filter(|address| address.to_canonical().is_loopback())
            }
            Self::Unix(_) => None,
        }
    }
}

/// Whether the `Host` of a request names this computer, or the address that is listened on. A page of
/// the internet can make a browser on this computer ask a loopback address, with its own name there
/// (DNS rebinding).
pub(super) fn names_this_computer(host: &str, own: IpAddr) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        // Not the end of an address of IPv6.
        Some((name, port)) if is_port(port) && !name.ends_with(':') => name,
        _ => host,
    };
    let address = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match address {
        Some(address) => address
            .parse()
            .is_ok_and(|address: Ipv6Addr| address == Ipv6Addr::LOCALHOST || address == own),
        None => {
            let is_own = |address: Ipv4Addr| address == Ipv4Addr::LOCALHOST || address == own;
            name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_own)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_numeric_or_a_socket_file() {
        let loopback: [&str; 4] = [
            "127.0.0.1:19400",
            "localhost:1",
            "[::1]:19400",
            "127.8.8.8:2",
        ];
        for text in loopback {
            let address: ListenAddress = text.parse().expect(text);
            assert!(address.loopback().is_some(), "{text}");
        }
        let mapped: ListenAddress = "[::ffff:127.0.0.1]:1".parse().expect("an address");
        assert!(mapped.loopback().is_some());
        for text in ["0.0.0.0:19400", "[::]:19400", "10.0.0.1:80"] {
            let address: ListenAddress = text.parse().expect(text);
            assert!(address.loopback().is_none(), "{text}");
        }
        assert_eq!(
            "unix:/run/x.sock".parse(),
            Ok(ListenAddress::Unix("/run/x.sock".into()))
        );
        for text in ["", "19400", ":19400", "gpu-01:19400", "unix:", "localhost"] {
            let why = ListenAddress::from_str(text).expect_err(text);
            assert!(why.contains("such as"), "{why}");
        }
    }

    #[test]
    fn only_localhost_and_the_addresses_of_this_computer_name_it() {
        let own = IpAddr::from(Ipv4Addr::LOCALHOST);
        for host in [
            "localhost",
            "LocalHost:19400",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]:19400",
            "[::1]",
        ] {
            assert!(names_this_computer(host, own), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:19400",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "localhost:80:80",
            "127.0.0.1:80@evil.example",
            "0.0.0.0",
            "[::2]",
            "[::1].evil.example",
            "::1",
            "127.0.0.2",
            "2130706433",
        ] {
            assert!(!names_this_computer(host, own), "{host}");
        }
        for (host, own) in [
            ("127.0.0.2:19400", "127.0.0.2"),
            ("[::ffff:127.0.0.1]:1", "::ffff:127.0.0.1"),
        ] {
            let own = own.parse().expect("an address");
            assert!(names_this_computer(host, own), "{host}");
        }
    }
}
