//! Host and Origin: what keeps a web page from reaching a local server by DNS rebinding (CVE-2025-66414 and
//! its many kin). Looked at on every path and method.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// The names under which the server may be called, and the pages that may call it. Loopback always is one.
#[derive(Debug, Clone, Default)]
pub struct Boundary {
    hosts: Vec<Place>,
    origins: Vec<(String, Place)>,
}

/// A host and a port; an entry of a list without a port takes any.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    host: String,
    port: Option<u16>,
}

impl Place {
    /// Reads `host`, `host:port` or `[v6]:port`, in any case and with or without the dot at the end.
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                // One spelling for each address.
                let address: Ipv6Addr = address.parse().ok()?;
                (format!("[{address}]"), port)
            }
            None => {
                let (host, port) = text.find(':').map_or((text, ""), |at| text.split_at(at));
                let host = host.strip_suffix('.').unwrap_or(host);
                let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
                if host.is_empty() || !host.bytes().all(fine) {
                    return None;
                }
                (host.to_ascii_lowercase(), port)
            }
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => None,
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            _ => return None,
        };
        Some(Self { host, port })
    }

    /// `localhost`, 127.0.0.0/8 in its usual spelling, `[::1]`.
    fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host == "[::1]"
            || self.host.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback())
    }

    fn covers(&self, other: &Self) -> bool {
        self.host == other.host && (self.port.is_none() || self.port == other.port)
    }
}

/// Reads `scheme://host[:port]`, with the scheme's own port where none is given.
fn parse_origin(text: &str) -> Option<(String, Place)> {
    let (scheme, rest) = text.trim_end_matches('/').split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let mut place = Place::parse(rest)?;
    place.port = place.port.or(match scheme.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    });
    Some((scheme, place))
}

impl Boundary {
    /// A boundary from `server.allowed_hosts`, `server.allowed_origins` and `server.public_url`, besides
    /// loopback. Gives back the entries that are neither a host nor an origin.
    pub fn new(hosts: &[String], origins: &[String], public_url: Option<&str>) -> (Self, Vec<String>) {
        let mut this = Self::default();
        let mut bad = Vec::new();
        for host in hosts {
            match Place::parse(host) {
                Some(place) => this.hosts.push(place),
                None => bad.push(host.clone()),
            }
        }
        for origin in origins {
            match parse_origin(origin) {
                Some(origin) => this.origins.push(origin),
                None => bad.push(origin.clone()),
            }
        }
        let public = public_url.and_then(|url| {
            let (scheme, rest) = url.split_once("://")?;
            parse_origin(&format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()))
        });
        if let Some((scheme, place)) = public {
            this.hosts.push(Place { host: place.host.clone(), port: None });
            this.origins.push((scheme, place));
        }
        (this, bad)
    }

    /// Whether a request may come in; else why not.
    pub(super) fn check(&self, headers: &HeaderMap, authority: Option<&str>) -> Result<(), &'static str> {
        const HOST_REFUSED: &str = "this `Host` is not served here: name it in `server.allowed_hosts`";
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err("a request has one `Host` header");
        };
        let fits = |text: &str| Place::parse(text).is_some_and(|p| self.takes_host(&p));
        if !host.to_str().is_ok_and(fits) || !authority.is_none_or(fits) {
            return Err(HOST_REFUSED);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => Ok(()),
            (Some(origin), None) if origin.to_str().is_ok_and(|o| self.takes_origin(o)) => Ok(()),
            _ => Err("this `Origin` may not call this server: name it in `server.allowed_origins`"),
        }
    }

    fn takes_host(&self, host: &Place) -> bool {
        host.is_loopback() || self.hosts.iter().any(|entry| entry.covers(host))
    }

    /// `null` is an origin like any other that nobody named: refused.
    fn takes_origin(&self, text: &str) -> bool {
        parse_origin(text).is_some_and(|(scheme, place)| {
            (matches!(scheme.as_str(), "http" | "https") && place.is_loopback())
                || self.origins.iter().any(|(s, entry)| *s == scheme && entry.covers(&place))
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(boundary: &Boundary, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        boundary.check(&headers, None).is_ok()
    }

    #[test]
    fn every_spelling_of_loopback_comes_in_and_nothing_else() {
        let boundary = Boundary::default();
        for host in [
            "localhost",
            "localhost:7331",
            "LOCALHOST:1",
            "localhost.",
            "localhost.:7331",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.8.9.1",
            "[::1]",
            "[::1]:7331",
            "[0:0:0:0:0:0:0:1]:7331",
        ] {
            assert!(check(&boundary, host, None), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "0.0.0.0",
            "127.1",
            "2130706433",
            "0x7f.1",
            "[::]",
            "[::ffff:127.0.0.1]",
            "localhost:",
            "localhost:x",
            "localhost:99999",
            "localhost:80:80",
            "user@localhost",
            "",
            ".",
            "localhost..",
            "[::1",
            "[::1]x",
            "192.168.1.1:7331",
            "local host",
            "localhost/",
            "localhost#",
            "127.0.0.1\\.evil.example",
        ] {
            assert!(!check(&boundary, host, None), "{host}");
        }
    }

    #[test]
    fn origins_of_pages_come_in_by_name_only() {
        let (boundary, bad) = Boundary::new(
            &["docent.example:8443".to_owned()],
            &["https://app.example".to_owned(), "chrome-extension://abc".to_owned(), "nonsense".to_owned()],
            Some("https://tools.example/base"),
        );
        assert_eq!(bad, ["nonsense"]);
        for origin in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:80",
            "HTTP://LOCALHOST.",
            "https://app.example",
            "https://app.example:443",
            "https://APP.example",
            "https://tools.example",
            "chrome-extension://abc",
        ] {
            assert!(check(&boundary, "localhost", Some(origin)), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://app.example",
            "https://app.example:444",
            "https://app.example.evil.example",
            "https://evil.example",
            "file://",
            "https://",
            "//localhost",
            "ftp://localhost",
            "http://localhost@evil.example",
            "http://localhost/path",
            "http://localhost, http://evil.example",
        ] {
            assert!(!check(&boundary, "localhost", Some(origin)), "{origin}");
        }
        for (host, fits) in [
            ("docent.example:8443", true),
            ("DOCENT.example.:8443", true),
            ("docent.example", false),
            ("docent.example:80", false),
            ("tools.example:1234", true),
            ("app.example", false),
            ("localhost", true),
        ] {
            assert_eq!(check(&boundary, host, None), fits, "{host}");
        }
    }

    #[test]
    fn doubled_headers_and_a_foreign_request_target_are_refused() {
        let boundary = Boundary::default();
        let mut headers = HeaderMap::new();
        assert!(boundary.check(&headers, None).is_err(), "no Host");
        headers.append(HOST, HeaderValue::from_static("localhost"));
        assert!(boundary.check(&headers, Some("localhost:7331")).is_ok());
        assert!(boundary.check(&headers, Some("evil.example")).is_err());
        headers.append(ORIGIN, HeaderValue::from_static("http://localhost"));
        headers.append(ORIGIN, HeaderValue::from_static("http://localhost"));
        assert!(boundary.check(&headers, None).is_err());
        headers.remove(ORIGIN);
        headers.append(HOST, HeaderValue::from_static("localhost"));
        assert!(boundary.check(&headers, None).is_err());
    }
}
