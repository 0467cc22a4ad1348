//! Where the service lives, as its document says: servers with variables, Swagger 2's host and base path.

use url::Url;

use super::document::{At, Documents, Version};

/// What a document, a path or an operation says about its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A whole one.
    Absolute(Url),
    /// A path below an origin that the document does not name.
    Relative(String),
    /// Something that is no address: a placeholder for people.
    Unusable(String),
}

/// The document's own address.
pub(super) fn of_document(documents: &Documents) -> Option<Address> {
    let root = documents.root();
    if documents.version == Version::Swagger2 { Some(swagger2(root)) } else { of(root) }
}

/// The address that `servers` names here, if it stands here: the first usable one.
pub(super) fn of(at: At<'_>) -> Option<Address> {
    let found: Vec<Address> = at.items("servers").filter_map(|s| Some(parse(&expand(s)?))).collect();
    let rank = |a: &Address| match a {
        Address::Absolute(_) => 0,
        Address::Relative(_) => 1,
        Address::Unusable(_) => 2,
    };
    found.into_iter().min_by_key(rank)
}

/// The URL with its variables at their defaults.
fn expand(server: At<'_>) -> Option<String> {
    let mut url = server.text("url")?.to_owned();
    for (name, variable) in server.members("variables") {
        let default = variable.value.get("default").or_else(|| variable.value.get("enum")?.get(0))?;
        url = url.replace(&format!("{{{name}}}"), &super::encode::scalar(default));
    }
    Some(url)
}

fn parse(url: &str) -> Address {
    // A scheme-relative one is asked for over TLS.
    let text = if url.starts_with("//") { format!("https:{url}") } else { url.trim().to_owned() };
    let usable = |u: &Url| {
        matches!(u.scheme(), "http" | "https") && u.has_host() && !text.contains(['{', '}', '<', '>'])
    };
    match Url::parse(&text) {
        Ok(parsed) if usable(&parsed) => Address::Absolute(parsed),
        Ok(_) => Address::Unusable(text),
        Err(_) if text.starts_with('/') || text.is_empty() || text.starts_with("./") => {
            Address::Relative(text.trim_start_matches('.').to_owned())
        }
        Err(_) => Address::Unusable(text),
    }
}

fn swagger2(root: At<'_>) -> Address {
    let base = root.text("basePath").unwrap_or("/");
    let Some(host) = root.text("host").filter(|h| !h.is_empty()) else {
        return Address::Relative(base.to_owned());
    };
    let schemes: Vec<&str> = root.items("schemes").filter_map(|s| s.value.as_str()).collect();
    let scheme = if schemes.contains(&"https") || !schemes.contains(&"http") { "https" } else { "http" };
    parse(&format!("{scheme}://{host}/{}", base.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(document: &str) -> Option<String> {
        let docs = Documents::load(document.as_bytes(), "a.yaml", &|_| Err(String::new())).unwrap();
        of_document(&docs).map(|a| match a {
            Address::Absolute(url) => url.to_string(),
            Address::Relative(path) => format!("relative {path}"),
            Address::Unusable(text) => format!("unusable {text}"),
        })
    }

    #[test]
    fn servers_are_read_as_they_are_written() {
        let v3 = |servers: &str| address(&format!("openapi: 3.0.0\nservers: {servers}"));
        let v = "[{url: 'https://{region}.example.com/{base}', variables: {region: {default: eu}, base: {enum: [v2], default: v1}}}]";
        assert_eq!(v3(v).unwrap(), "https://eu.example.com/v1");
        assert_eq!(v3("[{url: /api}]").unwrap(), "relative /api");
        assert_eq!(v3("[{url: /api}, {url: 'http://h/x'}]").unwrap(), "http://h/x");
        assert_eq!(v3("[{url: '//kubernetes.local'}]").unwrap(), "https://kubernetes.local/");
        assert_eq!(v3("[{url: '<local-ip>'}]").unwrap(), "unusable <local-ip>");
        assert_eq!(
            v3("[{url: 'https://{tenant}.example.com'}]").unwrap(),
            "unusable https://{tenant}.example.com"
        );
        assert_eq!(v3("[]"), None);
    }

    #[test]
    fn swagger_2_prefers_tls() {
        let v2 = |rest: &str| address(&format!("swagger: '2.0'\n{rest}")).unwrap();
        assert_eq!(v2("host: h:8\nbasePath: /v1\nschemes: [http, https]"), "https://h:8/v1");
        assert_eq!(v2("host: h\nschemes: [http]"), "http://h/");
        assert_eq!(v2("basePath: /v1"), "relative /v1");
    }
}
