//! Joining a request's path to the fixed address, so that no argument can leave it (security fact 5).

/// The address of `path` below `base`. `Err` tells the caller what is wrong with the path.
pub(super) fn below(base: &url::Url, path: &str, query: &[(String, String)]) -> Result<url::Url, String> {
    let well_formed = path.starts_with('/') && path.bytes().all(is_path_byte) && escapes_are_whole(path);
    if !well_formed {
        return Err("the path has characters that are not percent-encoded".to_owned());
    }
    if path.split('/').any(is_dot_segment) {
        return Err("`.` and `..` are not allowed as a part of a path".to_owned());
    }
    let whole = format!("{}{path}", base.path().trim_end_matches('/'));
    let mut url = base.clone();
    url.set_path(&whole);
    // INVARIANT: the parser changed nothing, so what was checked is what is sent.
    if url.path() != whole || url.origin() != base.origin() {
        return Err("the path cannot be sent as it is".to_owned());
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    Ok(url)
}

/// `pchar` of RFC 3986 §3.3 and `/`.
fn is_path_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:@/".contains(&b)
}

fn escapes_are_whole(path: &str) -> bool {
    path.split('%').skip(1).all(|rest| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2)
}

/// `.` and `..` in every spelling that a server might decode.
fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base() -> url::Url {
        url::Url::parse("https://api.example.com/v1/").unwrap()
    }

    #[test]
    fn paths_are_joined_below_the_prefix() {
        let pairs = [("q".to_owned(), "a&b=c".to_owned())];
        let url = below(&base(), "/users/a%2Fb", &pairs).unwrap();
        assert_eq!(url.as_str(), "https://api.example.com/v1/users/a%2Fb?q=a%26b%3Dc");
        for bad in ["users", "/../x", "/%2e%2E/x", "/a/.", "/a\\b", "/a?b", "/a#b", "/a%2", "/a b", "/%zz"] {
            assert!(below(&base(), bad, &[]).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_host_or_prefix(path in "/?[\\PC/.%\\\\:@#?]{0,40}", value in "\\PC{0,20}") {
            if let Ok(url) = below(&base(), &path, &[("k".to_owned(), value)]) {
                prop_assert_eq!(url.origin(), base().origin());
                prop_assert!(url.path().starts_with("/v1/"));
                prop_assert!(url.username().is_empty() && url.fragment().is_none());
                let decoded = percent_encoding::percent_decode_str(url.path()).decode_utf8_lossy().into_owned();
                prop_assert!(!url.path().split('/').any(|s| s == ".."), "{}", decoded);
            }
        }
    }
}
