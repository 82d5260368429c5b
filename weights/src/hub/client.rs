//! Requests to the hub. The client follows redirects itself, so that the token is sent only to the hub's own origin,
//! and every wait has a timeout.

use std::io::Read;
use std::time::Duration;

use ureq::http::{HeaderMap, Response, StatusCode, Uri, header};
use ureq::tls::{TlsConfig, TlsProvider};
use ureq::{Agent, Body, BodyReader};

use super::failure::Failure;
use super::options::HubOptions;
use super::redirect::{same_origin, target};
use crate::error::{Result as WeightsResult, WeightsError};
use crate::hub_names::is_commit;

/// Maximum number of consecutive redirects.
const MAX_REDIRECTS: usize = 10;
/// Maximum size of a repository description in bytes; descriptions of 100,000 files have some ten megabytes.
const LISTING_LIMIT: u64 = 64 << 20;
/// Maximum time for a repository description, as a multiple of the etag timeout.
const LISTING_WAITS: u32 = 6;

/// HTTP client for one hub.
pub(super) struct Client {
    endpoint: Uri,
    token: Option<String>,
    asking: TimedAgent,
    loading: TimedAgent,
}

/// An HTTP agent and its timeout.
struct TimedAgent {
    agent: Agent,
    timeout: Duration,
    /// Environment variable of the timeout, for messages.
    variable: &'static str,
}

impl TimedAgent {
    fn new(timeout: Duration, whole_body: Option<Duration>, tls: &TlsConfig, variable: &'static str) -> Self {
        let config = Agent::config_builder()
            .tls_config(tls.clone())
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("grove/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_resolve(Some(timeout))
            .timeout_connect(Some(timeout))
            .timeout_send_request(Some(timeout))
            .timeout_recv_response(Some(timeout))
            .timeout_per_read(Some(timeout))
            .timeout_recv_body(whole_body);
        Self { agent: config.build().into(), timeout, variable }
    }

    fn waited(&self, what: &str) -> String {
        format!("{what} {:?} ({} sets how long to wait)", self.timeout, self.variable)
    }
}

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// The description of a repository.
    Listing,
    /// A file's headers.
    Headers,
    /// A file's content from this byte on.
    Content(u64),
}

/// The hub's headers for a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Commit of the file, in hexadecimal digits.
    pub(super) commit: String,
    /// Identifier of the content, in hexadecimal digits: the sha256 of an LFS file, otherwise git's hash.
    pub(super) etag: String,
    /// Size of the file in bytes; `None` if the hub does not send it.
    pub(super) size: Option<u64>,
}

/// A file's content during a transfer.
pub(super) struct Content {
    /// The bytes from `start` on.
    pub(super) body: BodyReader<'static>,
    /// Position of the first byte in the file; at most the requested one.
    pub(super) start: u64,
    /// Size of the whole file in bytes; `None` if the server does not send it.
    pub(super) size: Option<u64>,
}

impl Client {
    /// Creates a client for the hub of the options.
    pub(super) fn new(options: &HubOptions) -> WeightsResult<Self> {
        let endpoint = options.checked_endpoint()?;
        let unusable =
            |error| WeightsError::BadHubOption(format!("the hub's address `{endpoint}` cannot be used: {error}"));
        let (etag, download) = options.checked_timeouts()?;
        let roots = super::certificates::roots(&options.certificates)?;
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(roots).build();
        Ok(Self {
            endpoint: endpoint.parse().map_err(unusable)?,
            token: options.checked_token()?,
            asking: TimedAgent::new(etag, Some(etag.saturating_mul(LISTING_WAITS)), &tls, "HF_HUB_ETAG_TIMEOUT"),
            loading: TimedAgent::new(download, None, &tls, "HF_HUB_DOWNLOAD_TIMEOUT"),
        })
    }

    /// Returns the body of the hub's description of a repository.
    pub(super) fn listing(&self, url: &str) -> Result<Vec<u8>, Failure> {
        let response = self.follow(url, Ask::Listing, |_| Ok(false))?;
        let mut text = Vec::new();
        let read = response.into_body().into_reader().take(LISTING_LIMIT + 1).read_to_end(&mut text);
        read.map_err(|error| {
            let waited = || format!("its answer did not end within {:?}", self.asking.timeout * LISTING_WAITS);
            Failure::of_request(error.into(), waited)
        })?;
        if text.len() as u64 > LISTING_LIMIT {
            return Err(Failure::Answer(format!("its description of the model is longer than {LISTING_LIMIT} bytes")));
        }
        Ok(text)
    }

    /// Returns the hub's headers for a file, without contacting the storage that the hub redirects to.
    pub(super) fn metadata(&self, url: &str) -> Result<Metadata, Failure> {
        let mut found = None;
        self.follow(url, Ask::Headers, |response| {
            found = Metadata::of(response)?;
            Ok(found.is_some())
        })?;
        found.ok_or_else(|| Failure::Answer("its answer is not that of a hub: it has no X-Repo-Commit".into()))
    }

    /// Returns a file's content from byte `start` on, or from an earlier byte if the server does not support ranges.
    /// Returns [`Failure::Resume`] if the file no longer matches `metadata`, or has no such byte.
    pub(super) fn content(&self, url: &str, start: u64, metadata: &Metadata) -> Result<Content, Failure> {
        let mut found = None;
        let response = self.follow(url, Ask::Content(start), |response| {
            // As in `metadata`, the first response with the hub's headers is used.
            if found.is_none() {
                found = Metadata::of(response)?;
            }
            match &found {
                Some(now) if now.etag != metadata.etag || now.commit != metadata.commit => {
                    Err(Failure::Resume("the file changed on the server".into()))
                }
                _ => Ok(false),
            }
        });
        let response = match response {
            Err(Failure::Status(416)) => {
                return Err(Failure::Resume("the partial file is longer than the file".into()));
            }
            response => response?,
        };
        let headers = response.headers();
        if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(Failure::Answer("it sent the file compressed, which was not requested".into()));
        }
        let (start, size) = match response.status() {
            StatusCode::PARTIAL_CONTENT => match content_range(headers) {
                Some((first, size)) if first <= start => (first, size),
                _ => return Err(Failure::Answer("it sent another part of the file than requested".into())),
            },
            _ => (0, length(headers)),
        };
        Ok(Content { start, size, body: response.into_body().into_reader() })
    }

    /// Converts an error from reading the body of a content.
    pub(super) fn reading_failed(&self, error: std::io::Error) -> Failure {
        Failure::of_request(error.into(), || self.stalled())
    }

    /// Returns the message for a stalled transfer.
    pub(super) fn stalled(&self) -> String {
        self.loading.waited("the transfer stalled for")
    }

    /// Returns the time after which a transfer counts as stalled.
    pub(super) fn stall(&self) -> Duration {
        self.loading.timeout
    }

    /// Sends a request and follows redirects, until a response is successful or `enough` returns true for a response,
    /// whether a redirect or the last one.
    fn follow(
        &self,
        url: &str,
        ask: Ask,
        mut enough: impl FnMut(&Response<Body>) -> Result<bool, Failure>,
    ) -> Result<Response<Body>, Failure> {
        let unusable = |error| Failure::Answer(format!("the address `{url}` cannot be used: {error}"));
        let mut address: Uri = url.parse().map_err(unusable)?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&address, ask)?;
            let status = response.status();
            let redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
            if !redirect && !status.is_success() {
                return Err(Failure::Status(status.as_u16()));
            }
            if enough(&response)? || !redirect {
                return Ok(response);
            }
            address = target(&address, response.headers())?;
        }
        Err(Failure::Answer(format!("it redirects more than {MAX_REDIRECTS} times")))
    }

    /// Sends one request. Returns the response before its body is read.
    fn send(&self, address: &Uri, ask: Ask) -> Result<Response<Body>, Failure> {
        let timed = if matches!(ask, Ask::Content(_)) { &self.loading } else { &self.asking };
        let mut request = match ask {
            Ask::Headers => timed.agent.head(address.clone()),
            Ask::Listing | Ask::Content(_) => timed.agent.get(address.clone()),
        };
        if let Ask::Content(start @ 1..) = ask {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| same_origin(address, &self.endpoint)) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request.call().map_err(|error| Failure::of_request(error, || timed.waited("no answer within")))
    }
}

impl Metadata {
    /// Parses the hub's headers; `None` if the response has none, such as a response of the storage that a hub
    /// redirects to.
    fn of(response: &Response<Body>) -> Result<Option<Self>, Failure> {
        let headers = response.headers();
        let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let Some(commit) = text("x-repo-commit") else { return Ok(None) };
        let odd = |name: &str| Failure::Answer(format!("its {name} is not one of a hub"));
        if !is_commit(&commit) {
            return Err(odd("X-Repo-Commit"));
        }
        let etag = text("x-linked-etag").or_else(|| text("etag")).as_deref().and_then(clean_etag);
        let etag = etag.ok_or_else(|| odd("ETag"))?;
        let size = match text("x-linked-size") {
            Some(size) => Some(size.parse().map_err(|_| odd("X-Linked-Size"))?),
            None if response.status() == StatusCode::OK => length(headers),
            None => None,
        };
        Ok(Some(Self { commit, etag, size }))
    }

    /// Returns the sha256 of the content; `None` if the ETag is not a sha256.
    pub(super) fn sha256(&self) -> Option<String> {
        (self.etag.len() == 64).then(|| self.etag.to_ascii_lowercase())
    }
}

/// Returns the hexadecimal digits of an ETag, without the quotes and the prefix of a weak ETag; `None` for anything
/// else. The digits become a file name.
fn clean_etag(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix("W/").unwrap_or(text);
    let digits = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let valid = (1..=128).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then(|| digits.to_string())
}

/// Returns the Content-Length of a response; `None` if absent or invalid.
fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Returns the first byte of a range, and the size of the whole file if known: `bytes 500-999/1000`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (range, size) =
        headers.get(header::CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.parse().ok()?, if size == "*" { None } else { Some(size.parse().ok()?) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_hexadecimal() {
        let sha = "a3".repeat(32);
        for text in [sha.clone(), format!("\"{sha}\""), format!("W/\"{sha}\"")] {
            assert_eq!(clean_etag(&text), Some(sha.clone()), "{text}");
        }
        for text in ["", "\"\"", "../../../victim", "/etc/passwd", "a\\b", "c:x", "12-34", "\"ab", "xyz", "a b", "a\0b"]
        {
            assert_eq!(clean_etag(text), None, "{text}");
        }
        assert_eq!(clean_etag(&"a".repeat(129)), None);
    }

    #[test]
    fn ranges_are_read() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_RANGE, text.parse().expect("a header"));
            content_range(&headers)
        };
        assert_eq!(of("bytes 500-999/1000"), Some((500, Some(1000))));
        assert_eq!(of("bytes 0-0/*"), Some((0, None)));
        for text in ["bytes */1000", "500-999/1000", "bytes -1-2/3", "bytes 1-2", "bytes 1-2/x"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
