//! Slow, broken or hostile hubs, simulated by servers on the loopback address.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::server::{COMMIT, Manner, Reply, Repository, Request, Server, etag};
use grove_weights::{Certificates, FilePatterns, HubOptions, WeightsError, fetch};
use sha2::{Digest, Sha256};

const WEIGHTS: &[u8] = include_bytes!("../fixtures/dtypes.safetensors");
const ID: &str = "owner/model";
/// Timeouts of the tests that wait for one.
const SHORT: Duration = Duration::from_millis(300);

fn repository() -> Repository {
    Repository::new(&[("config.json", b"{}"), ("model.safetensors", WEIGHTS)])
}

fn options(endpoint: String, cache: &Path) -> HubOptions {
    HubOptions { endpoint, cache_dir: Some(cache.into()), progress: false, retries: 2, ..HubOptions::default() }
}

fn impatient(endpoint: String, cache: &Path) -> HubOptions {
    HubOptions { etag_timeout: SHORT, download_timeout: SHORT, ..options(endpoint, cache) }
}

fn cache() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Returns the response to every request.
type Answer = Box<dyn Fn() -> Reply + Send + Sync>;

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the files in the repository's directory of contents.
fn blobs(cache: &Path) -> Vec<PathBuf> {
    let listing = std::fs::read_dir(cache.join("models--owner--model/blobs"));
    let mut files: Vec<_> = listing.into_iter().flatten().flatten().map(|item| item.path()).collect();
    files.sort();
    files
}

fn assert_complete(cache: &Path) {
    let file = cache.join("models--owner--model/snapshots").join(COMMIT).join("model.safetensors");
    assert_eq!(std::fs::read(file).expect("read"), WEIGHTS);
    assert!(blobs(cache).iter().all(|path| path.extension().is_none()), "nothing partial remains");
}

/// Starts a server that answers requests for the weights with `about`, and all others like the hub.
fn hub(about: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |request| match request.path.ends_with(".safetensors") {
        true => about(request),
        false => repository().answer(request),
    })
}

/// Starts a server that sends the first `faults` responses to requests of one method for the weights in a given manner.
fn faulty(faults: usize, method: &'static str, manner: Manner) -> Server {
    let count = AtomicUsize::new(0);
    hub(move |request| {
        let reply = repository().answer(request);
        let faulty = request.method == method && count.fetch_add(1, Ordering::SeqCst) < faults;
        if faulty { reply.in_manner(manner) } else { reply }
    })
}

/// Returns a redirect of the weights, as the hub sends it for LFS files.
fn redirect(location: &str) -> Reply {
    Reply::status(302)
        .header("location", location)
        .header("x-linked-etag", &format!("\"{}\"", sha256(WEIGHTS)))
        .header("x-linked-size", &WEIGHTS.len().to_string())
        .header("x-repo-commit", COMMIT)
}

#[test]
fn redirects_never_receive_the_token() {
    let elsewhere = Server::start(|request| Repository::file(WEIGHTS, request, true));
    // The same host by its other name and on another port, and the hub itself by a path.
    for location in
        [format!("http://localhost:{}/blob", elsewhere.port()), elsewhere.endpoint() + "/blob", "/moved/blob".into()]
    {
        let server = Server::start(move |request| match request.path.as_str() {
            "/moved/blob" => Repository::file(WEIGHTS, request, true),
            path if path.ends_with(".safetensors") => redirect(&location),
            path if path.contains("/revision/") => Reply::status(307).header("location", "/renamed"),
            "/renamed" => repository().listing(COMMIT),
            _ => repository().answer(request),
        });
        let cache = cache();
        let options = HubOptions { token: Some("hf_secret".into()), ..options(server.endpoint(), cache.path()) };
        fetch(&options, ID, &FilePatterns::model()).expect("fetched");
        assert_complete(cache.path());
        assert!(server.log().iter().all(|request| request.header("authorization") == Some("Bearer hf_secret")));
    }
    assert_eq!(elsewhere.log().len(), 2, "a request for each, as the hub itself says what it is");
    for request in elsewhere.log() {
        assert_eq!(request.header("authorization"), None);
        assert!(!format!("{request:?}").contains("hf_secret"), "{request:?}");
    }
}

#[test]
fn redirects_lead_to_the_web_and_to_an_end() {
    let locations =
        ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher:x", "http://", "//", "http://[", "/loop.safetensors"];
    for location in locations {
        let server = hub(move |_| Reply::status(302).header("location", location));
        let looping = Server::start(move |_| Reply::status(302).header("location", location));
        for server in [server, looping] {
            let cache = cache();
            let error =
                fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err(location);
            assert!(matches!(error, WeightsError::Server { .. }), "{error}");
            assert!(error.to_string().contains("redirects"), "{error}");
            assert!(server.log().len() < 20, "{} requests", server.log().len());
        }
    }
}

#[test]
fn names_from_a_server_are_not_paths() {
    let names = ["../../../victim", "..", "/tmp/grove-victim", "a/b", "a\\b", "C:x", "", "main", "\"../../../victim\""];
    for (name, header) in
        names.into_iter().flat_map(|name| [(name, "etag"), (name, "x-linked-etag"), (name, "x-repo-commit")])
    {
        let server = hub(move |request| {
            let mut reply = repository().answer(request);
            reply.headers.retain(|(key, _)| key != header);
            reply.header(header, name)
        });
        let outer = cache();
        let victim = outer.path().join("victim");
        std::fs::write(&victim, "untouched").expect("written");
        let inner = outer.path().join("hub");
        let error = fetch(&options(server.endpoint(), &inner), ID, &FilePatterns::model()).expect_err(name);
        assert!(matches!(error, WeightsError::Server { .. }), "{header} {name}: {error}");
        assert_eq!(std::fs::read_to_string(&victim).expect("read"), "untouched");
        assert_eq!(std::fs::read_dir(outer.path()).expect("listed").count(), 2, "nothing beside the cache");
        assert!(server.ranges().is_empty(), "nothing is transferred");
        // The content of config.json, but nothing of the weights.
        assert_eq!(blobs(&inner).len(), 1);
    }
    // Files whose names point elsewhere do not belong to a model.
    for name in ["../../model.safetensors", "/tmp/model.safetensors", "C:\\model.safetensors", "a/model.safetensors"] {
        let server =
            Server::start(move |request| Repository::new(&[("config.json", b"{}"), (name, WEIGHTS)]).answer(request));
        let cache = cache();
        let error = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err(name);
        assert!(matches!(error, WeightsError::MissingFile { .. }), "{error}");
    }
}

#[test]
fn weak_and_unquoted_etags_are_accepted() {
    for quoted in [format!("W/\"{}\"", sha256(WEIGHTS)), sha256(WEIGHTS)] {
        let server = hub(move |request| {
            let mut reply = repository().answer(request);
            reply.headers.retain(|(key, _)| key != "etag");
            reply.header("etag", &quoted)
        });
        let cache = cache();
        fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect("fetched");
        assert!(blobs(cache.path()).iter().any(|path| path.ends_with(sha256(WEIGHTS))));
    }
}

#[cfg(unix)]
#[test]
fn the_cache_has_the_layout_of_huggingface_hub() {
    let files: [(&str, &[u8]); 4] =
        [("config.json", b"{}"), ("model.safetensors", WEIGHTS), ("1_Pooling/config.json", b"{1}"), ("vocab.txt", b"")];
    let server = Server::start(move |request| Repository::new(&files).answer(request));
    let cache = cache();
    let directory = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect("fetched");
    let model = cache.path().join("models--owner--model");
    assert_eq!(directory, model.join("snapshots").join(COMMIT));
    let leads_to = |name: &str| std::fs::read_link(directory.join(name)).expect("a link");
    assert_eq!(leads_to("model.safetensors"), Path::new("../../blobs").join(etag(WEIGHTS)));
    assert_eq!(leads_to("1_Pooling/config.json"), Path::new("../../../blobs").join(etag(b"{1}")));
    assert_eq!(std::fs::read(directory.join("vocab.txt")).expect("read"), b"", "an empty file is a file");
    assert_eq!(std::fs::read_to_string(model.join("refs/main")).expect("read"), COMMIT);
    assert!(cache.path().join(".locks/models--owner--model").join(etag(WEIGHTS) + ".lock").exists());
    // A link whose content was removed is recreated.
    std::fs::remove_file(model.join("blobs").join(etag(WEIGHTS))).expect("removed");
    fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect("fetched");
    assert_complete(cache.path());
}

#[test]
fn timeouts_are_retried() {
    // Silent for the description of the repository, and for a file.
    let silent = Server::start(|_| Reply::status(200).in_manner(Manner::Silence));
    let cache_of = cache();
    let error =
        fetch(&impatient(silent.endpoint(), cache_of.path()), ID, &FilePatterns::model()).expect_err("no answer");
    assert!(matches!(error, WeightsError::Network { .. }), "{error}");
    assert!(error.to_string().contains("no answer within 300ms (HF_HUB_ETAG_TIMEOUT"), "{error}");
    assert_eq!(silent.log().len(), 2, "it is asked again once");

    for (faults, method, variable) in [(2, "HEAD", "HF_HUB_ETAG_TIMEOUT"), (2, "GET", "HF_HUB_DOWNLOAD_TIMEOUT")] {
        let server = faulty(faults, method, Manner::Silence);
        let cache_of = cache();
        fetch(&impatient(server.endpoint(), cache_of.path()), ID, &FilePatterns::model()).expect("fetched");
        assert_complete(cache_of.path());

        let server = faulty(usize::MAX, method, Manner::Silence);
        let cache_of = cache();
        let error =
            fetch(&impatient(server.endpoint(), cache_of.path()), ID, &FilePatterns::model()).expect_err("no answer");
        assert!(matches!(error, WeightsError::Transfer { attempts: 3, .. }), "{error}");
        assert!(error.to_string().contains(variable), "{error}");
    }
}

#[test]
fn connecting_times_out() {
    // The system completes the connection, but the handshake never finishes.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("https://{}", listener.local_addr().expect("an address"));
    let cache = cache();
    let error = fetch(&impatient(endpoint, cache.path()), ID, &FilePatterns::model()).expect_err("no handshake");
    assert!(matches!(error, WeightsError::Network { .. }), "{error}");
    assert!(error.to_string().contains("no answer within 300ms"), "{error}");
}

#[test]
fn a_stalled_transfer_is_resumed() {
    let server = faulty(2, "GET", Manner::Stall(500));
    let cache_of = cache();
    fetch(&impatient(server.endpoint(), cache_of.path()), ID, &FilePatterns::model()).expect("fetched");
    assert_complete(cache_of.path());
    assert_eq!(server.ranges(), [None, Some("bytes=500-".into()), Some("bytes=1000-".into())]);

    // A transfer that never proceeds, and one that sends a byte now and then.
    for manner in [Manner::Stall(0), Manner::Trickle] {
        let server = faulty(usize::MAX, "GET", manner);
        let cache = cache();
        let error =
            fetch(&impatient(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err("too slow");
        assert!(matches!(error, WeightsError::Transfer { attempts: 3, .. }), "{error}");
        assert!(error.to_string().contains("stalled for 300ms (HF_HUB_DOWNLOAD_TIMEOUT"), "{error}");
    }
}

#[test]
fn a_slow_description_of_a_repository_has_an_end() {
    let server = Server::start(|_| repository().listing(COMMIT).in_manner(Manner::Trickle));
    let cache = cache();
    let options = HubOptions { etag_timeout: Duration::from_millis(50), ..options(server.endpoint(), cache.path()) };
    let error = fetch(&options, ID, &FilePatterns::model()).expect_err("too slow");
    assert!(matches!(error, WeightsError::Network { .. }), "{error}");
}

/// Starts servers that serve the weights from a storage that the hub redirects to.
fn stored(content: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> (Server, Server) {
    let storage = Server::start(content);
    let location = storage.endpoint() + "/blob";
    (hub(move |_| redirect(&location)), storage)
}

#[test]
fn the_sha256_of_lfs_files_is_compared() {
    let mut other = WEIGHTS.to_vec();
    other[1000] ^= 1;
    let (server, storage) = stored(move |request| Repository::file(&other, request, true));
    let cache_of = cache();
    let error =
        fetch(&options(server.endpoint(), cache_of.path()), ID, &FilePatterns::model()).expect_err("another content");
    let WeightsError::Checksum { announced, received, file, .. } = &error else { panic!("{error}") };
    assert_eq!((&**announced, file.as_str()), (&*sha256(WEIGHTS), "model.safetensors"));
    assert!(announced != received && error.to_string().contains(&**announced), "{error}");
    assert_eq!(storage.log().len(), 1, "a second time would be the same");
    assert_eq!(blobs(cache_of.path()).len(), 1, "only config.json's content remains");

    let (server, storage) = stored(|request| Repository::file(WEIGHTS, request, true));
    fetch(&options(server.endpoint(), cache_of.path()), ID, &FilePatterns::model()).expect("fetched");
    assert_complete(cache_of.path());
    assert_eq!(storage.log().len(), 1);
}

#[test]
fn partial_files_are_continued_only_if_they_fit() {
    let damaged: Vec<u8> = WEIGHTS[..700].iter().map(|byte| !byte).collect();
    for (kept, requests) in [
        // A correct prefix, the whole file, a longer file, and another content.
        (WEIGHTS[..700].to_vec(), vec![Some("bytes=700-")]),
        (WEIGHTS.to_vec(), vec![]),
        ([WEIGHTS, b"more"].concat(), vec![None]),
        (damaged, vec![Some("bytes=700-"), None]),
        (vec![0; WEIGHTS.len()], vec![None]),
    ] {
        let (server, storage) = stored(|request| Repository::file(WEIGHTS, request, true));
        let cache = cache();
        let folder = cache.path().join("models--owner--model/blobs");
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join(sha256(WEIGHTS) + ".incomplete"), &kept).expect("written");
        fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect("fetched");
        assert_complete(cache.path());
        let log = storage.log();
        let ranges: Vec<_> = log.iter().map(|request| request.header("range")).collect();
        assert_eq!(ranges, requests, "{} bytes", kept.len());
    }
}

#[test]
fn a_file_that_changes_is_begun_anew() {
    // At first, the hub announces one content and sends another.
    let count = AtomicUsize::new(0);
    let server = hub(move |request| match request.method == "HEAD" && count.fetch_add(1, Ordering::SeqCst) == 0 {
        true => Repository::file(b"the older content", request, true),
        false => repository().answer(request),
    });
    let cache = cache();
    let folder = cache.path().join("models--owner--model/blobs");
    std::fs::create_dir_all(&folder).expect("made");
    let older = folder.join(etag(b"the older content") + ".incomplete");
    std::fs::write(&older, "the older").expect("written");
    fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect("fetched");
    assert_complete(cache.path());
    assert_eq!(server.ranges(), [Some("bytes=9-".into()), None]);
}

#[test]
fn rejects_servers_with_wrong_lengths() {
    let announce = |reply: Reply, size: &str| reply.header("x-linked-size", size);
    let whole = || Reply::body(WEIGHTS).header("x-repo-commit", COMMIT).header("etag", &etag(WEIGHTS));
    let unannounced = move || Reply { announced: false, ..whole() };
    let faults: [(&str, Answer); 5] = [
        ("sends more", Box::new(move || announce(unannounced().in_manner(Manner::Endless(1 << 26)), "5000"))),
        ("but sends", Box::new(move || announce(whole(), "100"))),
        ("how long", Box::new(unannounced)),
        ("X-Linked-Size", Box::new(move || announce(whole(), "-1"))),
        ("compressed", Box::new(move || whole().header("content-encoding", "br"))),
    ];
    for (words, reply) in faults {
        let server = hub(move |_| reply());
        let cache = cache();
        let error = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err(words);
        assert!(matches!(error, WeightsError::Server { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        let kept = blobs(cache.path()).iter().filter_map(|path| path.metadata().ok()).map(|about| about.len()).max();
        assert!(kept.is_none_or(|kept| kept <= WEIGHTS.len() as u64), "{kept:?} bytes kept");
    }
}

#[test]
fn long_responses_are_not_buffered() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![b' '; 1 << 20];
    (0..80).for_each(|_| std::io::Write::write_all(&mut bomb, &zeros).expect("compressed"));
    let bomb = bomb.finish().expect("compressed");
    let spaces = || Reply { announced: false, ..Reply::body(vec![b' '; 1 << 20]) };
    let answers: [Answer; 6] = [
        Box::new(move || spaces().in_manner(Manner::Endless(1 << 30))),
        Box::new(move || Reply::body(bomb.clone()).header("content-encoding", "gzip")),
        Box::new(|| Reply::status(200).header("x-long", &"x".repeat(4 << 20))),
        Box::new(|| Reply::body("[".repeat(1 << 20))),
        Box::new(|| Reply::body(vec![0xff; 1 << 10])),
        Box::new(|| Reply::body(format!("{{\"siblings\": \"{}\"}}", "x".repeat(1 << 20)))),
    ];
    for answer in answers {
        let server = Server::start(move |_| answer());
        let cache = cache();
        let error =
            fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err("no answer");
        assert!(matches!(error, WeightsError::Server { .. }), "{error}");
        assert!(error.to_string().len() < 500, "{error}");
    }
}

/// Returns the authority that signed the servers' certificate.
fn authority() -> Certificates {
    Certificates::File("tests/fixtures/tls/authority.pem".into())
}

#[test]
fn certificates_are_checked_against_the_authorities_chosen() {
    let server = Server::start_tls(|request| repository().answer(request));
    let cache_of = cache();
    let public = options(server.endpoint(), cache_of.path());
    let error = fetch(&public, ID, &FilePatterns::model()).expect_err("nobody vouches for it");
    assert!(matches!(error, WeightsError::Network { .. }), "{error}");
    for words in ["certificate", "GROVE_SYSTEM_CERTS=1", "SSL_CERT_FILE"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    let trusting = HubOptions { certificates: authority(), ..public.clone() };
    fetch(&trusting, ID, &FilePatterns::model()).expect("fetched");
    assert_complete(cache_of.path());
    // A certificate is valid only for its own name, not for the address of the same server.
    let other = HubOptions { endpoint: format!("https://127.0.0.1:{}", server.port()), ..trusting.clone() };
    let error = fetch(&other, "owner/other", &FilePatterns::model()).expect_err("another name").to_string();
    assert!(error.contains("certificate"), "{error}");
    let absent = HubOptions { certificates: Certificates::File("nowhere.pem".into()), ..trusting };
    let error = fetch(&absent, ID, &FilePatterns::model()).expect_err("no such file").to_string();
    assert!(error.contains("nowhere.pem") && error.contains("SSL_CERT_FILE"), "{error}");
}

#[test]
fn https_does_not_become_http() {
    let plain = Server::start(|request| repository().answer(request));
    let (lower, same) = (plain.endpoint(), plain.endpoint() + "/blob");
    // A downgrade at the first request, and at the content.
    let whole =
        Server::start_tls(move |request| Reply::status(307).header("location", &(lower.clone() + &request.path)));
    let content = Server::start_tls(move |request| match request.path.ends_with(".safetensors") {
        true => redirect(&same),
        false => repository().answer(request),
    });
    for server in [whole, content] {
        let cache = cache();
        let options = HubOptions {
            token: Some("hf_secret".into()),
            certificates: authority(),
            ..options(server.endpoint(), cache.path())
        };
        let error = fetch(&options, ID, &FilePatterns::model()).expect_err("not safe");
        assert!(matches!(error, WeightsError::Server { .. }), "{error}");
        assert!(error.to_string().contains("from https to http"), "{error}");
    }
    assert!(plain.log().is_empty(), "it was not asked");
    // A redirect to `https` is allowed, but without the token: it is another origin.
    let safe = Server::start_tls(|request| repository().answer(request));
    let upper = safe.endpoint();
    let server = Server::start(move |request| Reply::status(301).header("location", &(upper.clone() + &request.path)));
    let cache = cache();
    let options = HubOptions {
        token: Some("hf_secret".into()),
        certificates: authority(),
        ..options(server.endpoint(), cache.path())
    };
    fetch(&options, ID, &FilePatterns::model()).expect("fetched");
    assert_complete(cache.path());
    assert!(safe.log().iter().all(|request| request.header("authorization").is_none()));
}
