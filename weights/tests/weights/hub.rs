//! Tests of the hub over HTTP, against a server on the loopback address.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::server::{COMMIT, Manner, Reply, Repository, Server, etag};
use grove_weights::{FilePatterns, HubOptions, Source, TensorFiles, WeightsError, fetch};

const WEIGHTS: &[u8] = include_bytes!("../fixtures/dtypes.safetensors");
const ID: &str = "owner/model";

fn repository() -> Repository {
    Repository::new(&[
        ("README.md", b"not wanted"),
        ("config.json", b"{}"),
        ("model.safetensors", WEIGHTS),
        ("pytorch_model.bin", b"not wanted"),
        ("tokenizer.json", b"{\"model\": {}}"),
        ("1_Pooling/config.json", b"{\"pooling\": 1}"),
    ])
}

#[test]
fn downloads_tokenizer_without_weights() {
    let server = Server::start(|request| repository().answer(request));
    let cache = cache();
    let directory = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::tokenizer()).expect("fetched");
    assert!(directory.join("tokenizer.json").exists());
    assert!(!directory.join("config.json").exists() && !directory.join("model.safetensors").exists());
    let bare = Server::start(|request| Repository::new(&[("config.json", b"{}")]).answer(request));
    let other = tempfile::tempdir().expect("a temporary directory");
    let error =
        fetch(&options(bare.endpoint(), other.path()), ID, &FilePatterns::tokenizer()).expect_err("there is none");
    assert!(matches!(error, WeightsError::MissingFile { .. }), "{error}");
}

#[test]
fn a_tokenizer_has_its_additional_chat_templates() {
    let repository = || {
        Repository::new(&[
            ("config.json", b"{}"),
            ("tokenizer.json", b"{}"),
            ("chat_template.jinja", b"default"),
            ("additional_chat_templates/tools.jinja", b"tools"),
            ("1_Pooling/config.json", b"{}"),
        ])
    };
    let server = Server::start(move |request| repository().answer(request));
    let cache = cache();
    let directory = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::tokenizer()).expect("fetched");
    assert_eq!(std::fs::read(directory.join("additional_chat_templates/tools.jinja")).expect("read"), b"tools");
    assert!(!directory.join("config.json").exists() && !directory.join("1_Pooling").exists());
}

/// Older repositories of sentence-transformers have the transformer in a folder.
#[test]
fn the_transformer_of_a_sentence_encoder_can_be_in_a_folder() {
    let index = br#"{"weight_map": {"a": "model-00001-of-00001.safetensors"}}"#;
    for sharded in [false, true] {
        let mut repository = Repository::new(&[
            ("modules.json", b"[]"),
            ("0_Transformer/config.json", b"{}"),
            ("0_Transformer/vocab.txt", b"[PAD]"),
            ("1_Pooling/config.json", b"{}"),
            ("config_sentence_transformers.json", b"{}"),
        ]);
        let weights = match sharded {
            false => Repository::new(&[("0_Transformer/pytorch_model.bin", b"weights")]),
            true => Repository::new(&[
                ("0_Transformer/model.safetensors.index.json", index),
                ("0_Transformer/model-00001-of-00001.safetensors", WEIGHTS),
            ]),
        };
        repository.files.extend(weights.files);
        let served = repository.clone();
        let server = Server::start(move |request| served.answer(request));
        let cache = cache();
        let options = options(server.endpoint(), cache.path());
        let directory = fetch(&options, ID, &FilePatterns::model()).expect("fetched");
        for name in repository.files.keys() {
            assert!(directory.join(name).exists(), "{name}");
        }
        let offline = HubOptions { offline: true, ..options };
        assert_eq!(fetch(&offline, ID, &FilePatterns::model()).expect("cached"), directory);
    }
}

/// A repository of GGUF files contains several files, and no `config.json`.
#[test]
fn one_of_several_gguf_files_is_downloaded() {
    let repository = || {
        Repository::new(&[
            ("README.md", b"not wanted"),
            ("model-Q4_K_M.gguf", b"four bits"),
            ("model-Q8_0-00001-of-00002.gguf", b"eight bits"),
            ("model-Q8_0-00002-of-00002.gguf", b"more of them"),
            ("mmproj-model-F16.gguf", b"of images"),
        ])
    };
    let server = Server::start(move |request| repository().answer(request));
    let cache = cache();
    let options = options(server.endpoint(), cache.path());
    let get = |text: &str, options: &HubOptions| Source::parse(text)?.resolve(options, &FilePatterns::model());
    let four = get("owner/model:Q4_K_M", &options).expect("fetched");
    assert_eq!(std::fs::read(&four).expect("read"), b"four bits");
    assert!(!four.with_file_name("README.md").exists() && !four.with_file_name("mmproj-model-F16.gguf").exists());
    let eight = get("owner/model:q8_0", &options).expect("fetched");
    assert_eq!(eight.file_name().expect("a name"), "model-Q8_0-00001-of-00002.gguf");
    assert_eq!(std::fs::read(eight.with_file_name("model-Q8_0-00002-of-00002.gguf")).expect("read"), b"more of them");
    assert_eq!(get("owner/model/model-Q4_K_M.gguf", &options).expect("fetched"), four);
    let offline = HubOptions { offline: true, ..options.clone() };
    assert_eq!(get("owner/model:Q4_K_M", &offline).expect("cached"), four);
    assert!(get("owner/model:Q2_K", &offline).expect_err("not cached").to_string().contains("Q2_K"));

    let error = get("owner/model:Q2_K", &options).expect_err("not there").to_string();
    assert!(error.contains("has no GGUF file of Q2_K, but of Q4_K_M, Q8_0"), "{error}");
    let error = get("owner/model", &options).expect_err("several").to_string();
    assert!(error.contains("Q4_K_M, Q8_0: name one, as id:Q4_K_M"), "{error}");
}

/// Returns options that are independent of the environment.
fn options(endpoint: String, cache: &Path) -> HubOptions {
    HubOptions {
        endpoint,
        cache_dir: Some(cache.into()),
        token: None,
        offline: false,
        progress: false,
        retries: 2,
        revision: "main".into(),
        ..HubOptions::default()
    }
}

fn cache() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Returns an address without a listener.
fn unused_endpoint() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

#[test]
fn fetches_what_a_model_needs_once() {
    let server = Server::start(|request| repository().answer(request));
    let cache = cache();
    let options = options(server.endpoint() + "/", cache.path());
    let directory = fetch(&options, ID, &FilePatterns::model()).expect("fetched");
    assert_eq!(directory, cache.path().join("models--owner--model/snapshots").join(COMMIT));
    assert_eq!(std::fs::read(directory.join("model.safetensors")).expect("read"), WEIGHTS);
    assert_eq!(std::fs::read(directory.join("1_Pooling/config.json")).expect("read"), b"{\"pooling\": 1}");
    assert!(directory.join("tokenizer.json").exists());
    assert!(!directory.join("README.md").exists() && !directory.join("pytorch_model.bin").exists());
    assert_eq!(TensorFiles::open(&directory).expect("opened").names().count(), 17);
    assert!(server.log().iter().all(|request| request.header("authorization").is_none()));

    let before = server.log().len();
    let again = Source::parse("owner/model@main").and_then(|source| source.resolve(&options, &FilePatterns::model()));
    assert_eq!(again.expect("cached"), directory);
    assert_eq!(server.log().len(), before + 1, "one question, no download");
}

#[test]
fn follows_redirects_and_keeps_the_token_to_the_hub() {
    let content = Server::start(|request| Repository::file(WEIGHTS, request, true));
    let elsewhere = format!("http://localhost:{}/blob", content.port());
    let server = Server::start(move |request| match request.path.ends_with(".safetensors") {
        true => Reply::status(302)
            .header("location", &elsewhere)
            .header("x-linked-etag", &etag(WEIGHTS))
            .header("x-repo-commit", COMMIT),
        false => repository().answer(request),
    });
    let cache = cache();
    let options = HubOptions { token: Some("hf_secret".into()), ..options(server.endpoint(), cache.path()) };
    let directory = fetch(&options, ID, &FilePatterns::model()).expect("fetched");
    assert_eq!(std::fs::read(directory.join("model.safetensors")).expect("read"), WEIGHTS);
    assert!(server.log().iter().all(|request| request.header("authorization") == Some("Bearer hf_secret")));
    let elsewhere = content.log();
    assert!(!elsewhere.is_empty() && elsewhere.iter().all(|request| request.header("authorization").is_none()));
}

/// Starts a server whose first `faults` transfers of the weights are changed by `fault`.
fn faulty(faults: usize, fault: impl Fn(Reply) -> Reply + Send + Sync + 'static) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |request| {
        let reply = repository().answer(request);
        if request.is_transfer() && count.fetch_add(1, Ordering::SeqCst) < faults { fault(reply) } else { reply }
    })
}

#[test]
fn an_interrupted_transfer_is_resumed() {
    let server = faulty(2, |reply| reply.in_manner(Manner::Cut(500)));
    let cache = cache();
    let directory = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect("fetched");
    assert_eq!(std::fs::read(directory.join("model.safetensors")).expect("read"), WEIGHTS);
    assert_eq!(server.ranges(), [None, Some("bytes=500-".into()), Some("bytes=1000-".into())]);
}

#[test]
fn the_next_run_resumes_a_failed_transfer() {
    let server = faulty(3, |reply| reply.in_manner(Manner::Cut(100)));
    let cache = cache();
    let options = options(server.endpoint(), cache.path());
    let error = fetch(&options, ID, &FilePatterns::model()).expect_err("three times broken");
    assert!(
        matches!(&error, WeightsError::Transfer { attempts: 3, file, .. } if file == "model.safetensors"),
        "{error}"
    );
    let directory = fetch(&options, ID, &FilePatterns::model()).expect("fetched");
    assert_eq!(std::fs::read(directory.join("model.safetensors")).expect("read"), WEIGHTS);
    assert_eq!(server.ranges().last(), Some(&Some("bytes=300-".into())));
}

#[test]
fn a_server_that_ignores_ranges_does_not_corrupt() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        if !request.path.ends_with(".safetensors") {
            return repository().answer(request);
        }
        let reply = Repository::file(WEIGHTS, request, false);
        let first = request.is_transfer() && count.fetch_add(1, Ordering::SeqCst) == 0;
        if first { reply.in_manner(Manner::Cut(700)) } else { reply }
    });
    let cache = cache();
    let directory = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect("fetched");
    assert_eq!(std::fs::read(directory.join("model.safetensors")).expect("read"), WEIGHTS);
}

#[test]
fn leftovers_of_another_length_are_replaced() {
    let lengths = [WEIGHTS.len(), WEIGHTS.len() + 10];
    for (length, suffix) in lengths.into_iter().flat_map(|length| [(length, ".incomplete"), (length, ".part")]) {
        let server = Server::start(|request| repository().answer(request));
        let cache = cache();
        let blobs = cache.path().join("models--owner--model/blobs");
        std::fs::create_dir_all(&blobs).expect("made");
        std::fs::write(blobs.join(etag(WEIGHTS) + suffix), vec![0; length]).expect("written");
        let directory = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect("fetched");
        assert_eq!(std::fs::read(directory.join("model.safetensors")).expect("read"), WEIGHTS);
    }
}

#[test]
fn distinguishes_unknown_models_revisions_and_files() {
    let server = Server::start(|request| repository().answer(request));
    let cache = cache();
    let options = options(server.endpoint(), cache.path());
    let error = fetch(&options, "owner/other", &FilePatterns::model()).expect_err("no such model");
    assert!(matches!(error, WeightsError::UnknownRepository { .. }), "{error}");
    assert!(error.to_string().contains("no file or directory owner/other here"), "{error}");
    let revision = HubOptions { revision: "v9".into(), ..options.clone() };
    let error = fetch(&revision, ID, &FilePatterns::model()).expect_err("no such revision");
    assert!(matches!(error, WeightsError::UnknownRevision { .. }), "{error}");
    let error = fetch(&options, ID, &FilePatterns::files(["nothing.json"])).expect_err("no such file");
    assert!(matches!(error, WeightsError::MissingFile { .. }), "{error}");
    for bad in ["../../x", "/etc/passwd", "a/./b", "c:\\x"] {
        let error = fetch(&options, ID, &FilePatterns::files([bad])).expect_err("not a file of a repository");
        assert!(matches!(error, WeightsError::BadHubOption(_)) && error.to_string().contains(bad), "{error}");
    }
    for bad in ["../x", "a/b/c", "a b"] {
        let error = fetch(&options, bad, &FilePatterns::model()).expect_err("not an id");
        assert!(matches!(error, WeightsError::BadSource { .. }), "{error}");
    }
    let commit = HubOptions { revision: COMMIT.into(), ..options };
    assert!(fetch(&commit, ID, &FilePatterns::files(["config.json"])).is_ok());
}

#[test]
fn access_errors_mention_the_token() {
    for (status, token, words) in
        [(401, None, "set HF_TOKEN"), (401, Some("hf_x"), "licence"), (403, Some("hf_x"), "another HF_TOKEN")]
    {
        let server = Server::start(move |_| Reply::status(status));
        let cache = cache();
        let options = HubOptions { token: token.map(Into::into), ..options(server.endpoint(), cache.path()) };
        let error = fetch(&options, ID, &FilePatterns::model()).expect_err("refused");
        assert!(matches!(error, WeightsError::Unauthorized { status: s, .. } if s == status), "{error}");
        assert!(error.to_string().contains(words) && !error.to_string().contains("hf_x"), "{error}");
    }
}

#[test]
fn the_cache_works_without_a_network() {
    let cache = cache();
    let unreachable = options(unused_endpoint(), cache.path());
    let offline = HubOptions { offline: true, ..unreachable.clone() };
    let error = fetch(&unreachable, ID, &FilePatterns::model()).expect_err("no server");
    assert!(matches!(error, WeightsError::Network { .. }), "{error}");
    let error = fetch(&offline, ID, &FilePatterns::model()).expect_err("nothing there");
    assert!(matches!(error, WeightsError::Offline { .. }), "{error}");
    assert!(error.to_string().contains("HF_HUB_OFFLINE"), "{error}");

    let server = Server::start(|request| repository().answer(request));
    let options = options(server.endpoint(), cache.path());
    let config = fetch(&options, ID, &FilePatterns::files(["config.json"])).expect("fetched");
    let error = fetch(&offline, ID, &FilePatterns::model()).expect_err("no weights yet");
    assert!(error.to_string().contains("a weights file is missing"), "{error}");
    let directory = fetch(&options, ID, &FilePatterns::model()).expect("fetched");
    assert_eq!(config, directory);
    let requests = server.log().len();
    for options in [&offline, &unreachable, &HubOptions { revision: COMMIT.into(), ..offline.clone() }] {
        assert_eq!(fetch(options, ID, &FilePatterns::model()).expect("cached"), directory);
    }
    assert_eq!(server.log().len(), requests, "offline means offline");
}

#[test]
fn retries_after_server_errors() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(503),
        _ => repository().answer(request),
    });
    let cache_of = cache();
    fetch(&options(server.endpoint(), cache_of.path()), ID, &FilePatterns::model()).expect("fetched");

    for answer in [500u16, 200] {
        // Status 200 with a page that does not come from the hub.
        let server = Server::start(move |_| Reply { status: answer, ..Reply::body("<html>welcome</html>") });
        let cache = cache();
        let error = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err("no hub");
        assert!(matches!(error, WeightsError::Server { .. }), "{error}");
    }
}

fn sharded(index: &str) -> Repository {
    Repository::new(&[
        ("config.json", b"{}"),
        ("model.safetensors.index.json", index.as_bytes()),
        ("model-00001-of-00002.safetensors", b"one"),
        ("model-00002-of-00002.safetensors", b"two"),
        ("model-00003-of-00003.safetensors", b"of another save"),
    ])
}

#[test]
fn shards_match_the_index() {
    let index = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    let server = Server::start(move |request| sharded(index).answer(request));
    let cache_of = cache();
    let directory = fetch(&options(server.endpoint(), cache_of.path()), ID, &FilePatterns::model()).expect("fetched");
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).expect("listed").flatten().map(|item| item.file_name()).collect();
    files.sort();
    assert_eq!(
        files,
        [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"
        ]
    );
    for (index, malformed) in [
        (r#"{"weight_map": {"a": "../../x.safetensors"}}"#, true),
        (r#"{"weight_map": {"a": "model-00009-of-00009.safetensors"}}"#, false),
    ] {
        let server = Server::start(move |request| sharded(index).answer(request));
        let cache = cache();
        let error =
            fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err("a bad index");
        match malformed {
            true => assert!(matches!(error, WeightsError::Malformed { .. }), "{error}"),
            false => assert!(matches!(error, WeightsError::MissingFile { .. }), "{error}"),
        }
    }
}

#[test]
fn hostile_responses_do_not_reach_the_cache() {
    for commit in ["../../../../tmp/grove", "/tmp/grove", "", "main"] {
        let server = Server::start(move |_| repository().listing(commit));
        let cache = cache();
        let error =
            fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err("no commit");
        assert!(matches!(error, WeightsError::Server { .. }), "{error}");
    }
    // A redirect without a target, and a response for one file that claims another commit.
    for fault in 0..2 {
        let server = Server::start(move |request| match (request.path.ends_with("config.json"), fault) {
            (true, 0) => Reply::status(302).header("etag", "\"ab\"").header("x-repo-commit", COMMIT),
            (true, _) => Reply::body("x")
                .header("etag", "\"ab\"")
                .header("x-repo-commit", "ffffffffffffffffffffffffffffffffffffffff"),
            _ => repository().answer(request),
        });
        let cache = cache();
        let error =
            fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err("a bad answer");
        assert!(matches!(error, WeightsError::Server { .. }), "{error}");
    }
}

#[test]
fn a_repository_without_weights_is_an_error() {
    let server = Server::start(|request| {
        Repository::new(&[("config.json", b"{}"), ("flax_model.msgpack", b"x")]).answer(request)
    });
    let cache = cache();
    let error = fetch(&options(server.endpoint(), cache.path()), ID, &FilePatterns::model()).expect_err("no weights");
    assert!(
        error.to_string().contains("has no weights in safetensors, PyTorch's, numpy's or GGUF's format"),
        "{error}"
    );
}
