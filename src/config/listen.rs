//! Where the server listens, and the one rule about it: without tokens only on loopback.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::auth::Authenticator;

/// The port of `docent serve` where none is given.
pub const DEFAULT_PORT: u16 = 7331;

/// An address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl Default for ListenAddress {
    fn default() -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT))
    }
}

impl ListenAddress {
    /// Reads `127.0.0.1:7331`, `[::1]:7331`, `localhost:7331` or `:7331` (loopback). Other host names are
    /// refused: what they resolve to could change where the server is reachable.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        if let Ok(port) = port.parse::<u16>()
            && (host.is_empty() || host.eq_ignore_ascii_case("localhost"))
        {
            return Ok(Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        text.parse::<SocketAddr>().map(Self).map_err(|_not_numeric| {
            format!("`{text}` is not an address and a port, such as `127.0.0.1:{DEFAULT_PORT}`")
        })
    }

    /// Whether only this machine can reach it.
    pub fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }

    /// Refuses to be reachable from other machines without tokens: everybody in reach would be `anonymous`.
    pub fn check(self, auth: &Authenticator) -> Result<(), String> {
        if auth.needs_token() || self.is_loopback() {
            return Ok(());
        }
        Err(format!(
            "auth.mode = \"none\" works on loopback only, and `{self}` can be reached from other machines"
        ))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_open_ones_need_tokens() {
        let parse = |t: &str| ListenAddress::parse(t).map(|a| a.to_string());
        assert_eq!(parse("localhost:80"), Ok("127.0.0.1:80".to_owned()));
        assert_eq!(parse(":0"), Ok("127.0.0.1:0".to_owned()));
        assert_eq!(parse("[::1]:7331"), Ok("[::1]:7331".to_owned()));
        for bad in ["", "7331", "example.com:80", "127.0.0.1", "1.2.3.4:70000"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let (open, tokens) = (Authenticator::open(Vec::new()), Authenticator::tokens(Vec::new()));
        for (address, alone) in
            [("127.8.0.1:1", true), ("[::ffff:127.0.0.1]:1", true), ("0.0.0.0:1", false), ("[::]:1", false)]
        {
            let address = ListenAddress::parse(address).unwrap();
            assert_eq!(address.check(&open).is_ok(), alone, "{address}");
            assert!(address.check(&tokens).is_ok());
        }
    }
}
