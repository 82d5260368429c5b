//! The hub's cache when several processes use it, or when one of them dies.

mod server;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use grove_weights::{FilePatterns, HubOptions, fetch};
use server::{COMMIT, Manner, Repository, Server, etag};

const WEIGHTS: &[u8] = include_bytes!("fixtures/dtypes.safetensors");
const ID: &str = "owner/model";
/// Environment variables: the endpoint and the cache of a child process.
const ENDPOINT: &str = "GROVE_TEST_ENDPOINT";
const CACHE: &str = "GROVE_TEST_CACHE";

fn repository() -> Repository {
    Repository::new(&[("config.json", b"{}"), ("model.safetensors", WEIGHTS)])
}

fn options(endpoint: String, cache: &Path, progress: bool) -> HubOptions {
    HubOptions { endpoint, cache_dir: Some(cache.into()), progress, ..HubOptions::default() }
}

/// Not a test by itself: the child process that the tests start.
#[test]
fn child_that_fetches() {
    let (Ok(endpoint), Ok(cache)) = (std::env::var(ENDPOINT), std::env::var(CACHE)) else { return };
    fetch(&options(endpoint, cache.as_ref(), true), ID, &FilePatterns::model()).expect("fetched");
}

fn child(server: &Server, cache: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test's program"))
        .args(["--exact", "child_that_fetches", "--nocapture"])
        .env(ENDPOINT, server.endpoint())
        .env(CACHE, cache)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started")
}

fn assert_complete(cache: &Path) {
    let model = cache.join("models--owner--model");
    let file = model.join("snapshots").join(COMMIT).join("model.safetensors");
    assert_eq!(std::fs::read(file).expect("read"), WEIGHTS);
    let partial = std::fs::read_dir(model.join("blobs")).expect("listed").flatten();
    assert_eq!(partial.filter(|item| item.path().extension().is_some()).count(), 0, "nothing partial remains");
}

/// Waits until the condition holds, and fails after a time-out.
fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never happened");
}

#[test]
fn one_process_downloads_and_the_others_wait() {
    let server = Server::start(|request| repository().answer(request));
    let cache = tempfile::tempdir().expect("a directory");
    let locks = cache.path().join(".locks/models--owner--model");
    std::fs::create_dir_all(&locks).expect("made");
    let lock = std::fs::File::create(locks.join(etag(WEIGHTS) + ".lock")).expect("made");
    lock.lock().expect("locked");
    let mut children = [child(&server, cache.path()), child(&server, cache.path())];
    for child in &mut children {
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        // One process may also wait for the other's config.json.
        let notice = "another process is downloading model.safetensors; waiting for it";
        assert!(lines.any(|line| line.is_ok_and(|line| line == notice)), "no notice");
        // Keeps reading, so that the child can write.
        std::thread::spawn(move || lines.count());
    }
    assert!(server.ranges().is_empty(), "nothing is downloaded while the lock is held");
    drop(lock);
    for mut child in children {
        assert!(child.wait().expect("ended").success());
    }
    assert_complete(cache.path());
    assert_eq!(server.ranges(), [None], "one of them downloads, and the other finds the file");
}

#[test]
fn threads_of_one_process_wait_too() {
    let server = Server::start(|request| repository().answer(request));
    let cache = tempfile::tempdir().expect("a directory");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                fetch(&options(server.endpoint(), cache.path(), false), ID, &FilePatterns::model()).expect("fetched")
            });
        }
    });
    assert_complete(cache.path());
    assert_eq!(server.ranges(), [None]);
}

#[test]
fn a_killed_process_leaves_no_lock_and_a_part_to_resume() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let reply = repository().answer(request);
        let first = request.is_transfer() && count.fetch_add(1, Ordering::SeqCst) == 0;
        if first { reply.in_manner(Manner::Stall(600)) } else { reply }
    });
    let cache = tempfile::tempdir().expect("a directory");
    let mut child = child(&server, cache.path());
    let part = cache.path().join("models--owner--model/blobs").join(etag(WEIGHTS) + ".incomplete");
    until(|| std::fs::metadata(&part).is_ok_and(|about| about.len() == 600));
    // Kills the child without a chance to clean up.
    child.kill().expect("killed");
    child.wait().expect("ended");
    fetch(&options(server.endpoint(), cache.path(), false), ID, &FilePatterns::model()).expect("fetched");
    assert_complete(cache.path());
    assert_eq!(server.ranges(), [None, Some("bytes=600-".into())]);
}
