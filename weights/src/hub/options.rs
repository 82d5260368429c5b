//! Options for the connection to the hub.

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "hub")]
use crate::error::{Result, WeightsError};
#[cfg(feature = "hub")]
use grove_files::FileError;

/// Address of the hub, credentials, cache directory and limits.
///
/// The cache has the layout of `huggingface_hub`, so downloads are shared with Python.
#[derive(Clone, PartialEq, Eq)]
pub struct HubOptions {
    /// Branch, tag or commit.
    pub revision: String,
    /// Access token for private and gated models. It is sent only to the endpoint's own scheme, host and port.
    pub token: Option<String>,
    /// Directory of `models--owner--name`; `None` if no home directory is known, which is an error on use.
    pub cache_dir: Option<PathBuf>,
    /// URL of the hub.
    pub endpoint: String,
    /// If true, the network is not used.
    pub offline: bool,
    /// If true, downloads show progress bars on standard error, if that is a terminal.
    pub progress: bool,
    /// Number of times that a broken or stalled transfer is resumed.
    pub retries: usize,
    /// Timeout of a response about a repository or a file, and of its connection.
    pub etag_timeout: Duration,
    /// Timeout of the next bytes of a transfer, of its connection and of the start of its response.
    pub download_timeout: Duration,
    /// Trusted certificate authorities.
    pub certificates: Certificates,
}

/// Certificate authorities that are trusted for `https` connections to a hub and to the storage that it redirects to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Certificates {
    /// Mozilla's list of public authorities at the time of the build.
    #[default]
    Public,
    /// The operating system's authorities, by its own rules.
    System,
    /// Only the authorities in a PEM file.
    File(PathBuf),
}

/// Default of both timeouts, as in `huggingface_hub`.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Default for HubOptions {
    /// The public hub, without a token, with the default cache directory.
    fn default() -> Self {
        Self::from_variables(|_| None)
    }
}

/// Omits the token.
impl std::fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubOptions")
            .field("revision", &self.revision)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("cache_dir", &self.cache_dir)
            .field("endpoint", &self.endpoint)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

impl HubOptions {
    /// Reads the options from the environment variables of `huggingface_hub`: `HF_ENDPOINT`, `HF_TOKEN` (or the token
    /// stored by `hf auth login`, at `HF_TOKEN_PATH`), `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`, `HF_HUB_OFFLINE`,
    /// `HF_HUB_DISABLE_PROGRESS_BARS`, `HF_HUB_ETAG_TIMEOUT` and `HF_HUB_DOWNLOAD_TIMEOUT` (seconds).
    ///
    /// Certificate authorities are the system's if `GROVE_SYSTEM_CERTS=1`, otherwise those of the PEM file
    /// `SSL_CERT_FILE`, otherwise Mozilla's. Proxies come from `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    pub fn from_env() -> Self {
        let mut options = Self::from_variables(|name| std::env::var(name).ok());
        if options.token.is_none() {
            let stored = std::env::var_os("HF_TOKEN_PATH")
                .map(PathBuf::from)
                .or_else(|| home(|name| std::env::var(name).ok()).map(|home| home.join("token")));
            options.token = stored.and_then(|path| std::fs::read_to_string(path).ok()).and_then(non_empty);
        }
        options
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).and_then(non_empty);
        let truth = |name: &str| {
            variable(name).is_some_and(|value| ["1", "on", "yes", "true"].contains(&&*value.to_ascii_lowercase()))
        };
        let cache_dir =
            variable("HF_HUB_CACHE").map(PathBuf::from).or_else(|| home(variable).map(|home| home.join("hub")));
        // An invalid number of seconds becomes zero, which `checked_timeouts` rejects.
        let seconds = |name: &str| {
            variable(name).map_or(TIMEOUT, |text| {
                text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
            })
        };
        let certificates = match variable("SSL_CERT_FILE") {
            _ if truth("GROVE_SYSTEM_CERTS") => Certificates::System,
            Some(file) => Certificates::File(file.into()),
            None => Certificates::Public,
        };
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        Self {
            revision: "main".into(),
            token: variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")),
            cache_dir,
            endpoint,
            offline: truth("HF_HUB_OFFLINE"),
            progress: !truth("HF_HUB_DISABLE_PROGRESS_BARS"),
            retries: 5,
            etag_timeout: seconds("HF_HUB_ETAG_TIMEOUT"),
            download_timeout: seconds("HF_HUB_DOWNLOAD_TIMEOUT"),
            certificates,
        }
    }
}

/// Validation for the client.
#[cfg(feature = "hub")]
impl HubOptions {
    /// Returns the URL without trailing slashes.
    ///
    /// # Errors
    /// [`WeightsError::BadHubOption`], unless the endpoint is an `http` or `https` URL with a host.
    pub(super) fn checked_endpoint(&self) -> Result<&str> {
        let endpoint = self.endpoint.trim_end_matches('/');
        let address: Option<ureq::http::Uri> = endpoint.parse().ok();
        let usable = address.is_some_and(|address| {
            matches!(address.scheme_str(), Some("http" | "https"))
                && address.host().is_some()
                && address.query().is_none()
        });
        if usable {
            Ok(endpoint)
        } else {
            Err(WeightsError::BadHubOption(format!(
                "the hub's address `{}` (HF_ENDPOINT) must look like https://huggingface.co",
                self.endpoint
            )))
        }
    }

    /// Returns the token.
    pub(super) fn checked_token(&self) -> Result<Option<String>> {
        match &self.token {
            Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => Err(WeightsError::BadHubOption(
                "the access token (HF_TOKEN) contains spaces or other characters that no token has".into(),
            )),
            token => Ok(token.clone()),
        }
    }

    /// Returns the timeouts of metadata requests and of downloads.
    ///
    /// # Errors
    /// [`WeightsError::BadHubOption`] if a timeout is zero.
    pub(super) fn checked_timeouts(&self) -> Result<(Duration, Duration)> {
        for (name, timeout) in
            [("HF_HUB_ETAG_TIMEOUT", self.etag_timeout), ("HF_HUB_DOWNLOAD_TIMEOUT", self.download_timeout)]
        {
            if timeout.is_zero() {
                let reason = format!("the hub's time-out ({name}) must be a number of seconds above 0, such as 10");
                return Err(WeightsError::BadHubOption(reason));
            }
        }
        Ok((self.etag_timeout, self.download_timeout))
    }

    /// Returns the cache directory as an absolute path.
    pub(super) fn checked_cache(&self) -> Result<PathBuf> {
        let Some(cache) = &self.cache_dir else {
            let reason = "no home directory is known for downloads; set HF_HOME";
            return Err(WeightsError::BadHubOption(reason.into()));
        };
        Ok(std::path::absolute(cache).map_err(FileError::io("find", cache))?)
    }
}

/// Returns `HF_HOME`, or its default.
fn home(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let variable = |name: &str| variable(name).and_then(non_empty).map(PathBuf::from);
    variable("HF_HOME").or_else(|| {
        let caches = variable("XDG_CACHE_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache")));
        Some(caches?.join("huggingface"))
    })
}

fn non_empty(text: String) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

#[cfg(all(test, feature = "hub"))]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> HubOptions {
        HubOptions::from_variables(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
        })
    }

    #[test]
    fn follows_the_environment() {
        let plain = options(&[]);
        assert_eq!((plain.endpoint.as_str(), plain.revision.as_str()), ("https://huggingface.co", "main"));
        assert!(!plain.offline && plain.progress && plain.token.is_none());
        let set = options(&[
            ("HF_HOME", "/data/hf"),
            ("HF_ENDPOINT", "https://mirror.example/"),
            ("HF_TOKEN", "hf_x\n"),
            ("HF_HUB_OFFLINE", "True"),
            ("HF_HUB_DISABLE_PROGRESS_BARS", "1"),
        ]);
        assert_eq!(set.cache_dir.as_deref(), Some("/data/hf/hub".as_ref()));
        assert_eq!(set.checked_endpoint().ok(), Some("https://mirror.example"));
        assert_eq!(set.token.as_deref(), Some("hf_x"));
        assert!(set.offline && !set.progress);
        let cache = options(&[("HF_HOME", "/data/hf"), ("HF_HUB_CACHE", "/cache"), ("HF_HUB_OFFLINE", "0")]);
        assert_eq!(cache.cache_dir.as_deref(), Some("/cache".as_ref()));
        assert!(!cache.offline);
        assert_eq!(plain.checked_timeouts().ok(), Some((Duration::from_secs(10), Duration::from_secs(10))));
        let timed = options(&[("HF_HUB_ETAG_TIMEOUT", "2.5"), ("HF_HUB_DOWNLOAD_TIMEOUT", "60")]);
        assert_eq!(timed.checked_timeouts().ok(), Some((Duration::from_millis(2500), Duration::from_secs(60))));
        assert_eq!(plain.certificates, Certificates::Public);
        let file = [("SSL_CERT_FILE", "/ca.pem")];
        assert_eq!(options(&file).certificates, Certificates::File("/ca.pem".into()));
        assert_eq!(options(&[file[0], ("GROVE_SYSTEM_CERTS", "1")]).certificates, Certificates::System);
        let xdg = options(&[("XDG_CACHE_HOME", "/x"), ("HF_TOKEN", " ")]);
        assert_eq!(xdg.cache_dir.as_deref(), Some("/x/huggingface/hub".as_ref()));
        assert_eq!(xdg.token, None);
    }

    #[test]
    fn refuses_what_cannot_be_used_and_keeps_the_token_to_itself() {
        for endpoint in ["", "huggingface.co", "ftp://x", "https://", "http://a b", "https://x/?y=z"] {
            let options = HubOptions { endpoint: endpoint.into(), ..HubOptions::default() };
            assert!(matches!(options.checked_endpoint(), Err(WeightsError::BadHubOption(_))), "{endpoint}");
        }
        for seconds in ["0", "-1", "ten", "nan", "inf", "1e300"] {
            let error = options(&[("HF_HUB_DOWNLOAD_TIMEOUT", seconds)]).checked_timeouts().expect_err(seconds);
            assert!(error.to_string().contains("HF_HUB_DOWNLOAD_TIMEOUT"), "{error}");
        }
        let options = HubOptions { token: Some("secret\r\nx: y".into()), ..HubOptions::default() };
        let error = options.checked_token().expect_err("not a token").to_string();
        assert!(!error.contains("secret") && !format!("{options:?}").contains("secret"));
    }
}
