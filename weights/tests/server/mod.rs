//! A hub on the loopback address: enough of HTTP and of the hub's answers to serve one repository, with faults.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The commit that every revision of the repository is.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What a client asked.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What the server answers.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Only so many bytes of the body are sent before the connection closes.
    pub cut: Option<usize>,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), cut: None }
    }

    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::status(200) }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// Files of a repository called `owner/model`.
#[derive(Clone, Default)]
pub struct Repository {
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Repository {
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        Self { files: files.iter().map(|(name, bytes)| ((*name).to_string(), bytes.to_vec())).collect() }
    }

    /// What the hub answers; `None` for addresses outside the repository.
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

    /// The bytes asked for by the range, if ranges are honoured.
    pub fn file(bytes: &[u8], request: &Request, ranges: bool) -> Reply {
        let range = request.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (start, end) = match range {
            Some((start, end)) if ranges || end == "0" => {
                let start = start.parse().unwrap_or(0);
                (start, end.parse().map_or(bytes.len(), |end: usize| end + 1).min(bytes.len()))
            }
            _ => (0, bytes.len()),
        };
        if start >= bytes.len() {
            return Reply::status(416);
        }
        Reply { status: 206, body: bytes[start..end].to_vec(), ..Reply::status(206) }
            .header("content-range", &format!("bytes {start}-{}/{}", end - 1, bytes.len()))
            .header("etag", &format!("\"{}\"", etag(bytes)))
            .header("x-repo-commit", COMMIT)
    }
}

/// A name for content.
pub fn etag(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(7u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("{sum:016x}{:08x}", bytes.len())
}

/// A running server; it ends when dropped.
pub struct Server {
    address: SocketAddr,
    log: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers each request with what `answer` makes of it.
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let log = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (thread_log, thread_stop) = (log.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if thread_stop.load(Ordering::SeqCst) {
                    break;
                }
                let Some(request) = read_request(&stream) else { continue };
                let reply = answer(&request);
                thread_log.lock().expect("the log").push(request);
                send(stream, &reply);
            }
        });
        Self { address, log, stop, thread: Some(thread) }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// All requests so far.
    pub fn log(&self) -> Vec<Request> {
        self.log.lock().expect("the log").clone()
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

fn read_request(stream: &TcpStream) -> Option<Request> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_string();
    let mut headers = BTreeMap::new();
    for line in lines.take(100) {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_string());
    }
    Some(Request { path, headers })
}

fn send(mut stream: TcpStream, reply: &Reply) {
    let mut head =
        format!("HTTP/1.1 {} Reply\r\nconnection: close\r\ncontent-length: {}\r\n", reply.status, reply.body.len());
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let sent = &reply.body[..reply.cut.unwrap_or(reply.body.len()).min(reply.body.len())];
    let _ = stream.write_all((head + "\r\n").as_bytes()).and_then(|()| stream.write_all(sent));
}
