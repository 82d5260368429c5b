//! The hub: repositories of models, over HTTP, kept in a cache.
//!
//! `hf-hub` asks, downloads and lays out the cache. Around it: which files are needed, one snapshot for all of
//! them even if the branch moves meanwhile, resuming of broken transfers, the cache when there is no network, and
//! errors that say what to do.

mod options;
mod transfer;
mod wanted;

pub use options::HubOptions;
pub use wanted::Wanted;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, Repo, RepoType};

use crate::error::{Result, WeightsError};
use crate::locate::ShardIndex;
use crate::source::{check_id, check_revision};

use transfer::{Failure, with_retries};
use wanted::weights_among;

/// Brings what is wanted of the repository `id` into the cache, as far as it is not there, and returns the
/// directory that holds it: the snapshot of one commit.
///
/// The hub is asked which commit the revision is; only files that the cache lacks are downloaded, and a transfer
/// that breaks is resumed. If the hub cannot be reached and the cache has everything, the cache serves; with
/// `options.offline` the hub is not asked at all. There is no time limit: `hf-hub` sets none and offers none.
///
/// # Errors
/// [`WeightsError::UnknownRepository`], [`UnknownRevision`](WeightsError::UnknownRevision),
/// [`MissingFile`](WeightsError::MissingFile), [`Unauthorized`](WeightsError::Unauthorized),
/// [`Network`](WeightsError::Network), [`Offline`](WeightsError::Offline), [`Server`](WeightsError::Server),
/// [`Transfer`](WeightsError::Transfer), [`BadSource`](WeightsError::BadSource) for an impossible id or revision,
/// [`BadHubOption`](WeightsError::BadHubOption).
pub fn fetch(options: &HubOptions, id: &str, wanted: &Wanted) -> Result<PathBuf> {
    let bad = |reason: String| WeightsError::BadSource { text: id.into(), reason };
    check_id(id).and_then(|()| check_revision(&options.revision)).map_err(bad)?;
    let hub = Hub::new(options, id)?;
    if options.offline {
        return hub.cached(wanted).map_err(|missing| WeightsError::Offline {
            id: id.into(),
            revision: options.revision.clone(),
            cache: hub.cache.path().clone(),
            missing,
        });
    }
    let info = match hub.info() {
        Ok(info) => info,
        // Without a hub the cache serves, if it can.
        Err(error @ (WeightsError::Network { .. } | WeightsError::Server { .. })) => {
            return hub.cached(wanted).map_err(|_| error);
        }
        Err(error) => return Err(error),
    };
    hub.download(&info, wanted)
}

/// A repository at a hub.
struct Hub<'a> {
    options: &'a HubOptions,
    id: &'a str,
    endpoint: &'a str,
    cache: Cache,
    api: Api,
}

impl<'a> Hub<'a> {
    fn new(options: &'a HubOptions, id: &'a str) -> Result<Self> {
        let endpoint = options.checked_endpoint()?;
        let cache = Cache::new(options.checked_cache()?);
        // Retries are ours: those of `hf-hub` append to the wrong place after resuming a partial file.
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(endpoint.into())
            .with_token(options.checked_token()?)
            .with_progress(false)
            .with_retries(0)
            .build()
            .map_err(|error| WeightsError::BadHubOption(format!("the hub's client cannot be made: {error}")))?;
        Ok(Self { options, id, endpoint, cache, api })
    }

    fn repo(&self, revision: &str) -> Repo {
        Repo::with_revision(self.id.into(), RepoType::Model, revision.into())
    }

    /// Where the files of a commit lie.
    fn snapshot(&self, commit: &str) -> PathBuf {
        self.cache.repo(self.repo(commit)).pointer_path(commit)
    }

    /// The cache's directory for the revision, if it has all that is wanted; else what is missing.
    fn cached(&self, wanted: &Wanted) -> std::result::Result<PathBuf, String> {
        let revision = &self.options.revision;
        let reference = self.cache.path().join(self.repo(revision).folder_name()).join("refs").join(revision);
        let commit = match std::fs::read_to_string(reference) {
            Ok(commit) => commit.trim().to_string(),
            Err(_) => revision.clone(),
        };
        let snapshot = self.snapshot(&commit);
        if !is_commit(&commit) || !snapshot.is_dir() {
            return Err("the whole model".into());
        }
        match wanted.lacking(&snapshot) {
            Some(missing) => Err(missing),
            None => Ok(snapshot),
        }
    }

    /// Commit and list of files.
    fn info(&self) -> Result<RepoInfo> {
        let ask = |revision: &str| {
            with_retries(2, || self.api.repo(self.repo(revision)).info().map_err(Failure::of_question))
        };
        let revision = &self.options.revision;
        let info = match ask(revision) {
            Ok(info) => info,
            Err(Failure::Status(404)) if revision != "main" && ask("main").is_ok() => {
                return Err(WeightsError::UnknownRevision {
                    id: self.id.into(),
                    revision: revision.clone(),
                    endpoint: self.endpoint.into(),
                });
            }
            Err(Failure::Status(404)) => {
                return Err(WeightsError::UnknownRepository { id: self.id.into(), endpoint: self.endpoint.into() });
            }
            Err(failure) => return Err(self.error(failure)),
        };
        if is_commit(&info.sha) { Ok(info) } else { Err(self.server("it names no commit".into())) }
    }

    fn server(&self, reason: String) -> WeightsError {
        WeightsError::Server { id: self.id.into(), endpoint: self.endpoint.into(), reason }
    }

    /// A failure that is not about one file.
    fn error(&self, failure: Failure) -> WeightsError {
        let (id, endpoint) = (self.id.to_string(), self.endpoint.to_string());
        match failure {
            Failure::Status(status @ (401 | 403)) => {
                WeightsError::Unauthorized { id, endpoint, status, had_token: self.options.token.is_some() }
            }
            Failure::Status(status) => self.server(format!("HTTP status {status}")),
            Failure::Unreachable(reason) => WeightsError::Network { id, endpoint, reason },
            Failure::Broken(reason) | Failure::Answer(reason) | Failure::Resume(reason) => self.server(reason),
            Failure::Disk(source) => WeightsError::Io { action: "write in", path: self.cache.path().clone(), source },
        }
    }

    /// Downloads what the cache lacks.
    fn download(&self, info: &RepoInfo, wanted: &Wanted) -> Result<PathBuf> {
        let listed: Vec<&str> = info.siblings.iter().map(|sibling| sibling.rfilename.as_str()).collect();
        let exists: HashSet<&str> = listed.iter().copied().collect();
        let missing = |file: &str| WeightsError::MissingFile {
            id: self.id.into(),
            wanted: file.into(),
            endpoint: self.endpoint.into(),
        };
        if let Some(file) = wanted.required.iter().find(|file| !exists.contains(file.as_str())) {
            return Err(missing(file));
        }
        let weights = match wanted.weights {
            true => Some(weights_among(&listed).ok_or_else(|| missing("weights in safetensors or PyTorch format"))?),
            false => None,
        };
        let optional = wanted.optional.iter().filter(|file| exists.contains(file.as_str()));
        for file in wanted.required.iter().chain(optional) {
            self.get(&info.sha, file)?;
        }
        if let Some(weights) = weights {
            let path = self.get(&info.sha, weights)?;
            if weights.ends_with(".json") {
                for shard in ShardIndex::read(&path)?.shards() {
                    if !exists.contains(shard) {
                        return Err(missing(shard));
                    }
                    self.get(&info.sha, shard)?;
                }
            }
        }
        // Only now: a revision that the cache knows has its files.
        self.cache
            .repo(self.repo(&self.options.revision))
            .create_ref(&info.sha)
            .map_err(WeightsError::io("write in", self.cache.path()))?;
        Ok(self.snapshot(&info.sha))
    }

    /// One file of a commit, from the cache or the hub.
    fn get(&self, commit: &str, file: &str) -> Result<PathBuf> {
        let path = self.snapshot(commit).join(file);
        if path.exists() {
            return Ok(path);
        }
        let repo = self.api.repo(self.repo(commit));
        let attempts = self.options.retries + 1;
        let download = || transfer::download(&self.api, &repo, file, &path, self.options.progress);
        match with_retries(attempts, download) {
            Ok(()) => Ok(path),
            Err(Failure::Status(404)) => Err(WeightsError::MissingFile {
                id: self.id.into(),
                wanted: file.into(),
                endpoint: self.endpoint.into(),
            }),
            Err(Failure::Broken(reason) | Failure::Resume(reason)) => {
                Err(WeightsError::Transfer { id: self.id.into(), file: file.into(), attempts, reason })
            }
            Err(failure) => Err(self.error(failure)),
        }
    }
}

/// Whether this can be a commit's hash; it becomes a directory's name.
fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a path leads to a file of exactly this size.
fn has_size(path: &Path, size: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.len() == size)
}
