//! A hub on the loopback address: enough of HTTP and of the hub's responses to serve one repository, with faults.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The commit of every revision of the repository.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Number of connections after which a server stops answering.
const MAX_CONNECTIONS: usize = 500;
/// Maximum length of request line and headers in bytes.
const MAX_HEAD: u64 = 1 << 16;

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns true if the content of the weights is requested.
    pub fn is_transfer(&self) -> bool {
        self.method == "GET" && self.path.ends_with(".safetensors")
    }
}

/// The manner of sending a response, until the client or the server ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Manner {
    #[default]
    Whole,
    /// Only this many bytes of the body are sent before the connection closes.
    Cut(usize),
    /// This many bytes of the body are sent, then nothing.
    Stall(usize),
    /// Nothing is sent, not even a status.
    Silence,
    /// One byte of the body every 20 ms.
    Trickle,
    /// The body is repeated, up to this many bytes.
    Endless(usize),
}

/// A response of the server.
#[derive(Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub manner: Manner,
    /// If true, the length of the body is announced.
    pub announced: bool,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), manner: Manner::Whole, announced: true }
    }

    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::status(200) }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn in_manner(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }
}

/// Files of a repository named `owner/model`.
#[derive(Clone, Default)]
pub struct Repository {
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Repository {
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        Self { files: files.iter().map(|(name, bytes)| ((*name).to_string(), bytes.to_vec())).collect() }
    }

    /// Returns the hub's response; 404 for URLs outside the repository.
    pub fn answer(&self, request: &Request) -> Reply {
        if request.path == "/api/models/owner/model/revision/main"
            || request.path == format!("/api/models/owner/model/revision/{COMMIT}")
        {
            return self.listing(COMMIT);
        }
        let file = request.path.strip_prefix(&format!("/owner/model/resolve/{COMMIT}/"));
        match file.and_then(|file| self.files.get(file)) {
            Some(bytes) => Self::file(bytes, request, true),
            None => Reply::status(404),
        }
    }

    pub fn listing(&self, commit: &str) -> Reply {
        let siblings: Vec<_> = self.files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
        Reply::body(serde_json::json!({ "sha": commit, "siblings": siblings }).to_string())
    }

    /// Returns the requested range of the bytes if `ranges` is true; otherwise all of them, as partial content.
    pub fn file(bytes: &[u8], request: &Request, ranges: bool) -> Reply {
        let range = request.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        let reply = match range.map(|start| if ranges { start.parse().expect("a number") } else { 0 }) {
            None => Reply::body(bytes),
            Some(start) if start >= bytes.len() => return Reply::status(416),
            Some(start) => Reply { body: bytes[start..].to_vec(), ..Reply::status(206) }
                .header("content-range", &format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len())),
        };
        reply.header("etag", &format!("\"{}\"", etag(bytes))).header("x-repo-commit", COMMIT)
    }
}

/// Returns an identifier of the content that is not a sha256.
pub fn etag(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(7u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("{sum:016x}{:08x}", bytes.len())
}

/// A running server, which stops when dropped.
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    log: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that responds to each request with the result of `answer`.
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(answer, None)
    }

    /// Starts a server for `https`, with the certificate of `tests/fixtures/tls` for `localhost`.
    pub fn start_tls(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let certificate = CertificateDer::from(include_bytes!("../fixtures/tls/server.der").to_vec());
        let key = PrivatePkcs8KeyDer::from(include_bytes!("../fixtures/tls/server_key.der").to_vec());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .expect("a certificate");
        Self::listen(answer, Some(Arc::new(config)))
    }

    fn listen(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let log = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (thread_log, thread_stop) = (log.clone(), stop.clone());
        let count = AtomicUsize::new(0);
        let thread = std::thread::spawn(move || {
            // A scope waits for its threads, so the server stops after its last connection.
            std::thread::scope(|scope| {
                for stream in listener.incoming().flatten() {
                    if thread_stop.load(Ordering::SeqCst) || count.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
                        break;
                    }
                    let (answer, log, stop, tls) = (&answer, &thread_log, &thread_stop, tls.clone());
                    scope.spawn(move || {
                        let wait = Some(Duration::from_secs(10));
                        let _ = stream.set_read_timeout(wait).and_then(|()| stream.set_write_timeout(wait));
                        match tls.map(ServerConnection::new) {
                            None => serve(stream, answer, log, stop),
                            Some(connection) => {
                                serve(StreamOwned::new(connection.expect("a connection"), stream), answer, log, stop);
                            }
                        }
                    });
                }
            });
        });
        Self { address, scheme, log, stop, thread: Some(thread) }
    }

    pub fn endpoint(&self) -> String {
        match self.scheme {
            "https" => format!("https://localhost:{}", self.port()),
            scheme => format!("{scheme}://{}", self.address),
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns all requests so far.
    pub fn log(&self) -> Vec<Request> {
        self.log.lock().expect("the log").clone()
    }

    /// Returns the ranges of the requests for the weights' content, `None` for the whole.
    pub fn ranges(&self) -> Vec<Option<String>> {
        let log = self.log();
        log.iter()
            .filter(|request| request.is_transfer())
            .map(|request| request.header("range").map(Into::into))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads one request, logs it, and answers it.
fn serve(stream: impl Read + Write, answer: &dyn Fn(&Request) -> Reply, log: &Mutex<Vec<Request>>, stop: &AtomicBool) {
    let mut reader = BufReader::new(stream);
    let Some(request) = read_request(&mut reader) else { return };
    let reply = answer(&request);
    let head_only = request.method == "HEAD";
    log.lock().expect("the log").push(request);
    // The client may disconnect at any time.
    let _ = send(reader.get_mut(), &reply, head_only, stop);
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut lines = reader.take(MAX_HEAD).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_string());
    }
    Some(Request { method, path, headers })
}

fn send(stream: &mut impl Write, reply: &Reply, head_only: bool, stop: &AtomicBool) -> std::io::Result<()> {
    let idle = || {
        while !stop.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    if reply.manner == Manner::Silence {
        idle();
        return Ok(());
    }
    let mut head = format!("HTTP/1.1 {} Reply\r\nconnection: close\r\n", reply.status);
    if reply.announced {
        head += &format!("content-length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all((head + "\r\n").as_bytes())?;
    if head_only {
        return stream.flush();
    }
    let body = &reply.body;
    match reply.manner {
        Manner::Cut(count) => stream.write_all(&body[..count.min(body.len())])?,
        Manner::Stall(count) => {
            stream.write_all(&body[..count.min(body.len())])?;
            stream.flush()?;
            idle();
        }
        Manner::Trickle => {
            for byte in body {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                stream.write_all(&[*byte])?;
                stream.flush()?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Manner::Endless(most) => {
            let mut sent = 0;
            while sent < most && !stop.load(Ordering::SeqCst) {
                stream.write_all(body)?;
                sent += body.len();
            }
        }
        Manner::Whole | Manner::Silence => stream.write_all(body)?,
    }
    stream.flush()
}
