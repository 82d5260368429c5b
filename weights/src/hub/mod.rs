//! The hub: repositories of models over HTTP, with a local cache.
//!
//! `hf-hub` defines the description of a repository, its URLs and the layout of the cache. This module adds the
//! selection of files, one snapshot for all of them even if the branch moves in the meantime, transfers that are
//! resumed, verified and done by one process at a time, the cache as a fallback without a network, and error messages
//! with a remedy.
//!
//! A server is not trusted: the token is sent only to the hub's own origin, a name from the server becomes a path only
//! if it is hexadecimal, and every response has a size limit and a time limit.

#[cfg(feature = "hub")]
mod certificates;
#[cfg(feature = "hub")]
mod client;
#[cfg(feature = "hub")]
mod failure;
#[cfg(feature = "hub")]
mod lock;
mod options;
#[cfg(feature = "hub")]
mod redirect;
#[cfg(feature = "hub")]
mod repository;
#[cfg(feature = "hub")]
mod selection;
#[cfg(feature = "hub")]
mod transfer;
mod wanted;

pub use options::{Certificates, HubOptions};
pub use wanted::FilePatterns;

use std::path::PathBuf;

use crate::error::{Result, WeightsError};
use crate::hub_names::{check_id, check_revision};
use crate::locate::is_plain_file_name;

#[cfg(feature = "hub")]
use repository::download;

/// Downloads the requested files of the repository `id` that the cache lacks, and returns their directory: the snapshot
/// of one commit.
///
/// The hub resolves the revision to a commit. Only files that the cache lacks are downloaded, and a broken or stalled
/// transfer is resumed. If another process is downloading a file, this process waits for it. If the hub cannot be
/// reached and the cache has all requested files, the cached snapshot is returned. With `options.offline`, the hub is
/// not contacted.
///
/// # Errors
/// [`WeightsError::UnknownRepository`], [`UnknownRevision`](WeightsError::UnknownRevision),
/// [`MissingFile`](WeightsError::MissingFile), [`Unauthorized`](WeightsError::Unauthorized),
/// [`Network`](WeightsError::Network), [`Offline`](WeightsError::Offline), [`Server`](WeightsError::Server),
/// [`Transfer`](WeightsError::Transfer), [`Checksum`](WeightsError::Checksum), [`File`](WeightsError::File) for the cache,
/// [`BadSource`](WeightsError::BadSource) for an impossible id or revision, [`BadHubOption`](WeightsError::BadHubOption)
/// for an option or a file name that cannot be used, [`WithoutHub`](WeightsError::WithoutHub) in a build without the
/// feature `hub`.
pub fn fetch(options: &HubOptions, id: &str, wanted: &FilePatterns) -> Result<PathBuf> {
    let bad = |reason: String| WeightsError::BadSource { text: id.into(), reason };
    check_id(id).and_then(|()| check_revision(&options.revision)).map_err(bad)?;
    let mut files = wanted.required.iter().chain(&wanted.optional).chain(&wanted.gguf);
    if let Some(file) = files.find(|file| !is_plain_path(file)) {
        return Err(WeightsError::BadHubOption(format!("`{file}` cannot be the name of a file in a repository")));
    }
    download(options, id, wanted)
}

/// Returns an error: without the feature `hub`, there is no client.
#[cfg(not(feature = "hub"))]
fn download(_: &HubOptions, id: &str, wanted: &FilePatterns) -> Result<PathBuf> {
    Err(WeightsError::WithoutHub { id: id.into(), wanted: wanted.description() })
}

/// Returns true if this can be the path of a file in a repository: names separated by slashes that stay in the
/// directory.
fn is_plain_path(path: &str) -> bool {
    path.split('/').all(is_plain_file_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_cannot_leave_the_repository() {
        for path in ["config.json", "1_Pooling/config.json", "a b/ä#?.txt"] {
            assert!(is_plain_path(path), "{path}");
        }
        for path in ["", "/etc/passwd", "../x", "a/../x", "a//b", "a/", "a\\b", "c:x", "a/./b", "a\nb"] {
            assert!(!is_plain_path(path), "{path}");
        }
    }
}
