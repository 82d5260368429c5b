//! A repository on a hub, and its snapshots in the cache.

use std::collections::HashSet;
use std::path::PathBuf;

use grove_files::{FileError, write_atomically};
use hf_hub::api::RepoInfo;
use hf_hub::{Cache, Repo, RepoType};

use super::client::Client;
use super::failure::{Failure, with_retries};
use super::is_plain_path;
use super::options::HubOptions;
use super::selection::parts_of;
use super::transfer::Download;
use super::wanted::FilePatterns;
use crate::error::{Result, WeightsError};
use crate::hub_names::is_commit;
use crate::locate::ShardIndex;
use crate::names_of_files::{VOCABULARY_FILES, is_gguf, is_part, is_template};

/// Downloads the requested files that the cache lacks; see [`fetch`](super::fetch).
pub(super) fn download(options: &HubOptions, id: &str, wanted: &FilePatterns) -> Result<PathBuf> {
    let hub = Hub::new(options, id)?;
    if options.offline {
        return hub.cached(wanted).map_err(|missing| WeightsError::Offline {
            id: id.into(),
            revision: options.revision.clone(),
            cache: hub.cache.path().clone(),
            missing,
        });
    }
    let client = Client::new(options)?;
    let info = match hub.info(&client) {
        Ok(info) => info,
        // If the hub fails, a complete cache is used.
        Err(error @ (WeightsError::Network { .. } | WeightsError::Server { .. })) => {
            return hub.cached(wanted).map_err(|_| error);
        }
        Err(error) => return Err(error),
    };
    hub.download(&client, &info, wanted)
}

/// A repository on a hub.
struct Hub<'a> {
    options: &'a HubOptions,
    id: &'a str,
    endpoint: &'a str,
    cache: Cache,
}

impl<'a> Hub<'a> {
    fn new(options: &'a HubOptions, id: &'a str) -> Result<Self> {
        let endpoint = options.checked_endpoint()?;
        Ok(Self { options, id, endpoint, cache: Cache::new(options.checked_cache()?) })
    }

    fn repo(&self, revision: &str) -> Repo {
        Repo::with_revision(self.id.into(), RepoType::Model, revision.into())
    }

    /// Returns the directory of the files of a commit.
    fn snapshot(&self, commit: &str) -> PathBuf {
        self.cache.repo(self.repo(commit)).pointer_path(commit)
    }

    /// Returns the file that contains the commit of a revision.
    fn reference(&self, revision: &str) -> PathBuf {
        self.cache.path().join(self.repo(revision).folder_name()).join("refs").join(revision)
    }

    /// Returns the cached snapshot of the revision if it has all requested files, otherwise a description of the first
    /// missing one.
    fn cached(&self, wanted: &FilePatterns) -> std::result::Result<PathBuf, String> {
        let revision = &self.options.revision;
        let commit = match std::fs::read_to_string(self.reference(revision)) {
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

    /// Returns the commit and the list of files.
    fn info(&self, client: &Client) -> Result<RepoInfo> {
        let ask = |revision: &str| -> std::result::Result<RepoInfo, Failure> {
            let url = format!("{}/api/{}", self.endpoint, self.repo(revision).api_url());
            let text = with_retries(2, |failure| self.tell(failure, "asking again"), || client.listing(&url))?;
            serde_json::from_slice(&text).map_err(|error| {
                // The error may quote the whole response.
                let reason: String = error.to_string().chars().take(200).collect();
                Failure::Answer(format!("its answer is not that of a hub: {reason}"))
            })
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

    fn missing(&self, wanted: &str) -> WeightsError {
        WeightsError::MissingFile { id: self.id.into(), wanted: wanted.into(), endpoint: self.endpoint.into() }
    }

    /// Converts a failure that does not concern a single file.
    fn error(&self, failure: Failure) -> WeightsError {
        let (id, endpoint) = (self.id.to_string(), self.endpoint.to_string());
        match failure {
            Failure::Status(status @ (401 | 403)) => {
                WeightsError::Unauthorized { id, endpoint, status, had_token: self.options.token.is_some() }
            }
            Failure::Status(status) => self.server(format!("HTTP status {status}")),
            Failure::Unreachable(reason) | Failure::TimedOut(reason) => WeightsError::Network { id, endpoint, reason },
            Failure::Broken(reason) | Failure::Answer(reason) | Failure::Resume(reason) | Failure::Excess(reason) => {
                self.server(reason)
            }
            Failure::Checksum { announced, received } => {
                self.server(format!("the sha256 of the file that it sent is {received}, but it announced {announced}"))
            }
            Failure::Disk { path, source } => FileError::io("write in the cache", path)(source).into(),
        }
    }

    /// Prints a failure that is retried on standard error, if progress is shown.
    fn tell(&self, failure: &Failure, next: &str) {
        let reason = match failure {
            _ if !self.options.progress => return,
            Failure::Status(status) => format!("HTTP status {status}"),
            Failure::TimedOut(reason) | Failure::Broken(reason) | Failure::Resume(reason) => reason.clone(),
            _ => return,
        };
        eprintln!("{}: {reason}; {next}", self.endpoint);
    }

    /// Downloads the requested files that the cache lacks.
    fn download(&self, client: &Client, info: &RepoInfo, wanted: &FilePatterns) -> Result<PathBuf> {
        let listed: Vec<&str> = info.siblings.iter().map(|sibling| sibling.rfilename.as_str()).collect();
        let exists: HashSet<&str> = listed.iter().copied().collect();
        let root = wanted.root(|file| exists.contains(file));
        let inside: Vec<&str> = listed.iter().filter_map(|file| file.strip_prefix(root)).collect();
        let weights = wanted.weights.then(|| wanted.weights_among(&inside));
        let of_gguf = match &weights {
            Some(Ok(weights)) => is_gguf(weights),
            // The message then concerns the choice among them.
            Some(Err(_)) => listed.iter().any(is_gguf),
            None => false,
        };
        if let Some(file) = wanted.missing(of_gguf, |file| exists.contains(file)) {
            return Err(self.missing(file));
        }
        if wanted.tokenizer && !VOCABULARY_FILES.iter().any(|name| exists.contains(name)) {
            return Err(self.missing("a tokenizer"));
        }
        let weights = weights.transpose().map_err(|reason| self.missing(&reason))?;
        for file in wanted.required.iter().chain(&wanted.optional).filter(|file| exists.contains(file.as_str())) {
            self.get(client, &info.sha, file)?;
        }
        let in_safetensors = |file: &str| exists.contains(&*file.replace("pytorch_model.bin", "model.safetensors"));
        let is_wanted = |file: &str| wanted.weights && is_part(file) || wanted.tokenizer && is_template(file);
        let parts = listed.iter().filter(|file| is_wanted(file) && is_plain_path(file));
        for part in parts.filter(|file| !(file.ends_with(".bin") && in_safetensors(file))) {
            self.get(client, &info.sha, part)?;
        }
        if let Some(weights) = weights {
            for part in parts_of(weights).iter().filter(|part| *part != weights) {
                if !exists.contains(part.as_str()) {
                    return Err(self.missing(part));
                }
                self.get(client, &info.sha, part)?;
            }
            let path = self.get(client, &info.sha, &format!("{root}{weights}"))?;
            if weights.ends_with(".json") {
                for shard in ShardIndex::read(&path)?.shards() {
                    let shard = format!("{root}{shard}");
                    if !exists.contains(&*shard) {
                        return Err(self.missing(&shard));
                    }
                    self.get(client, &info.sha, &shard)?;
                }
            }
        }
        // Written last, so that a revision in the cache always has its files.
        let revision = &self.options.revision;
        if *revision != info.sha {
            write_atomically(self.reference(revision), |writer| writer.write_all(info.sha.as_bytes()))?;
        }
        Ok(self.snapshot(&info.sha))
    }

    /// Returns the path of one file of a commit, downloading it if the cache lacks it.
    fn get(&self, client: &Client, commit: &str, file: &str) -> Result<PathBuf> {
        let path = self.snapshot(commit).join(file);
        if path.exists() {
            return Ok(path);
        }
        let repo = self.repo(commit);
        let folder = repo.folder_name();
        let url = format!("{}/{}/resolve/{}/{}", self.endpoint, repo.url(), repo.url_revision(), escaped(file));
        let download = Download {
            file,
            url: &url,
            commit,
            blobs: &self.cache.path().join(&folder).join("blobs"),
            locks: &self.cache.path().join(".locks").join(&folder),
            pointer: &path,
            progress: self.options.progress,
        };
        let attempts = self.options.retries.saturating_add(1);
        let told = |failure: &Failure| self.tell(failure, &format!("resuming {file}"));
        let (id, endpoint) = (self.id.to_string(), self.endpoint.to_string());
        match with_retries(attempts, told, || download.run(client)) {
            Ok(()) => Ok(path),
            Err(Failure::Status(404)) => Err(self.missing(file)),
            Err(Failure::Broken(reason) | Failure::Resume(reason) | Failure::TimedOut(reason)) => {
                Err(WeightsError::Transfer { id, file: file.into(), attempts, reason })
            }
            Err(Failure::Checksum { announced, received }) => {
                let [announced, received] = [announced, received].map(Into::into);
                Err(WeightsError::Checksum { id, file: file.into(), endpoint, announced, received })
            }
            Err(failure) => Err(self.error(failure)),
        }
    }
}

/// Percent-encodes a file's path for a URL, except for slashes.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_escaped_in_urls() {
        assert_eq!(escaped("1_Pooling/a b#?%.txt"), "1_Pooling/a%20b%23%3F%25.txt");
    }
}
