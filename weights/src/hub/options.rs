//! How the hub is reached.

use std::path::PathBuf;

use crate::error::{Result, WeightsError};

/// Where the hub is, who asks, and where downloads are kept.
///
/// The cache has the layout of `huggingface_hub`, so that what Python has downloaded is found, and the other way
/// round.
#[derive(Clone, PartialEq, Eq)]
pub struct HubOptions {
    /// Branch, tag or commit.
    pub revision: String,
    /// Access token, for private and gated models. It is sent to the endpoint's own host only.
    pub token: Option<String>,
    /// The directory of `models--owner--name`; `None` if no home directory is known.
    pub cache_dir: Option<PathBuf>,
    /// Address of the hub.
    pub endpoint: String,
    /// Whether the network is left alone.
    pub offline: bool,
    /// Whether downloads draw progress bars on standard error; nothing is drawn unless that is a terminal.
    pub progress: bool,
    /// How often a broken transfer is resumed.
    pub retries: usize,
}

impl Default for HubOptions {
    /// The public hub, without a token, with the default cache directory.
    fn default() -> Self {
        Self::from_variables(|_| None)
    }
}

/// Does not show the token.
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
    /// The options that the environment asks for, with the variables of `huggingface_hub`: `HF_ENDPOINT`,
    /// `HF_TOKEN` (or the token that `hf auth login` stored, at `HF_TOKEN_PATH`), `HF_HUB_CACHE`, `HF_HOME`,
    /// `XDG_CACHE_HOME`, `HF_HUB_OFFLINE`, `HF_HUB_DISABLE_PROGRESS_BARS`.
    ///
    /// `hf-hub` itself honours `HF_HOME` and `HF_ENDPOINT` only.
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
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        Self {
            revision: "main".into(),
            token: variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")),
            cache_dir,
            endpoint,
            offline: truth("HF_HUB_OFFLINE"),
            progress: !truth("HF_HUB_DISABLE_PROGRESS_BARS"),
            retries: 5,
        }
    }

    /// The address without a slash at its end.
    ///
    /// # Errors
    /// [`WeightsError::BadHubOption`], unless it is an `http` or `https` address with a host.
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

    /// The token, if it can be sent.
    pub(super) fn checked_token(&self) -> Result<Option<String>> {
        match &self.token {
            Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => Err(WeightsError::BadHubOption(
                "the access token (HF_TOKEN) contains spaces or other characters that no token has".into(),
            )),
            token => Ok(token.clone()),
        }
    }

    /// The cache directory, as an absolute path.
    pub(super) fn checked_cache(&self) -> Result<PathBuf> {
        let Some(cache) = &self.cache_dir else {
            let reason = "there is no home directory to keep downloads in; set HF_HOME";
            return Err(WeightsError::BadHubOption(reason.into()));
        };
        std::path::absolute(cache).map_err(WeightsError::io("find", cache))
    }
}

/// `HF_HOME`, or where it is by default.
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

#[cfg(test)]
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
        let options = HubOptions { token: Some("secret\r\nx: y".into()), ..HubOptions::default() };
        let error = options.checked_token().expect_err("not a token").to_string();
        assert!(!error.contains("secret") && !format!("{options:?}").contains("secret"));
    }
}
