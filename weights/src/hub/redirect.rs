//! Targets of redirects.

use ureq::http::{HeaderMap, Uri, header};

use super::failure::Failure;

/// Returns true if two URLs have the same scheme, host and port.
pub(super) fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| {
        uri.port_u16().or(match uri.scheme_str() {
            Some("https") => Some(443),
            Some("http") => Some(80),
            _ => None,
        })
    };
    a.scheme() == b.scheme()
        && port(a) == port(b)
        && a.host().zip(b.host()).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b))
}

/// Returns the URL that a response from `from` redirects to.
///
/// # Errors
/// [`Failure::Answer`] unless the target is an `http` or `https` URL, and not a downgrade of `from` to `http`.
pub(super) fn target(from: &Uri, headers: &HeaderMap) -> Result<Uri, Failure> {
    let odd = |reason: &str| Failure::Answer(format!("it redirects {reason}"));
    let location = headers.get(header::LOCATION).ok_or_else(|| odd("without saying where to"))?;
    let location = location.to_str().map_err(|_| odd("to an address with characters that no address has"))?.trim();
    let location = location.split('#').next().unwrap_or_default();
    let scheme = from.scheme_str().unwrap_or("https");
    let origin = format!("{scheme}://{}", from.authority().map_or("", |authority| authority.as_str()));
    let address = if has_scheme(location) {
        location.to_string()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        origin + location
    } else if location.starts_with('?') {
        origin + from.path() + location
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{origin}{folder}/{location}")
    };
    let address: Uri = address.parse().map_err(|_| odd("to something that is not an address"))?;
    match address.scheme_str() {
        _ if address.host().is_none_or(str::is_empty) => Err(odd("to an address without a host")),
        Some("https") => Ok(address),
        Some("http") if scheme == "http" => Ok(address),
        Some("http") => Err(odd("from https to http, where others can read and change the transfer")),
        _ => Err(odd("to an address that is neither https nor http")),
    }
}

/// Returns true if a location starts with a scheme, such as `https:`.
fn has_scheme(location: &str) -> bool {
    location.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().expect("an address")
    }

    #[test]
    fn origins_are_scheme_host_and_port() {
        for (a, b, same) in [
            ("https://hub.example/a", "https://HUB.example:443/b?c", true),
            ("http://127.0.0.1:80/", "http://127.0.0.1/x", true),
            ("http://127.0.0.1:8000/", "http://127.0.0.1:8001/", false),
            ("http://127.0.0.1:8000/", "http://localhost:8000/", false),
            ("https://hub.example/", "http://hub.example/", false),
            ("https://hub.example/", "https://hub.example.evil.example/", false),
            ("https://hub.example/", "https://hub.example@evil.example/", false),
            ("https://hub.example/", "https://hub.example:8443/", false),
        ] {
            assert_eq!(same_origin(&uri(a), &uri(b)), same, "{a} {b}");
        }
    }

    #[test]
    fn locations_are_resolved() {
        let to = |from: &str, location: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, location.parse().expect("a header"));
            target(&uri(from), &headers).map(|uri| uri.to_string()).ok()
        };
        let from = "https://hub.example:8443/a/b?c=d";
        for (location, expected) in [
            ("https://cdn.example/x?y=z://w", "https://cdn.example/x?y=z://w"),
            ("/new/name?u=http://v", "https://hub.example:8443/new/name?u=http://v"),
            ("//cdn.example/x", "https://cdn.example/x"),
            ("?e=f", "https://hub.example:8443/a/b?e=f"),
            ("g#h", "https://hub.example:8443/a/g"),
        ] {
            assert_eq!(to(from, location).as_deref(), Some(expected), "{location}");
        }
        for location in [
            "http://hub.example/x",
            "file:///etc/passwd",
            "ftp://hub.example/x",
            "javascript:1",
            "https://",
            "https:///x",
            "a b",
        ] {
            assert_eq!(to(from, location), None, "{location}");
        }
        assert_eq!(to("http://127.0.0.1:1/", "http://127.0.0.1:2/x").as_deref(), Some("http://127.0.0.1:2/x"));
        assert!(target(&uri(from), &HeaderMap::new()).is_err());
    }
}
