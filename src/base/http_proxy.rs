//! The HTTP proxy between this program and a server.

use ureq::Proxy;

/// Returns the proxy, without which the hosts in a list with commas are reached; `None` if it
/// cannot be one.
pub(crate) fn excepting(given: &Proxy, hosts: &str) -> Option<Proxy> {
    let mut builder = Proxy::builder(given.protocol())
        .host(given.host())
        .port(given.port());
    if let Some(user) = given.username() {
        builder = builder.username(user);
    }
    if let Some(password) = given.password() {
        builder = builder.password(password);
    }
    for host in hosts.split(',').map(str::trim) {
        if !host.is_empty() {
            builder = builder.no_proxy(host);
        }
    }
    builder.build().ok()
}
