//! The processes of the ranks, and detection of their death.

use grove_communicator::Absence;
use std::{
    fs,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process,
};

/// Size of an encoded [`Process`] in bytes.
pub(crate) const BYTES: usize = 256;

/// A rank's process.
pub(crate) struct Process {
    id: u32,
    host: String,
    /// Machine and PID namespace, in which a process id is unique.
    place: String,
    /// The processors on which the process may run.
    processors: String,
}

impl Process {
    /// Returns this process.
    pub(crate) fn own() -> Self {
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        let space =
            fs::read_link("/proc/self/ns/pid").map_or_else(|_| String::new(), |link| link.display().to_string());
        let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let processors = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let processors = processors.unwrap_or_default().trim().to_owned();
        Self { id: process::id(), host, place: format!("{space} {}", machine.trim()), processors }
    }

    /// Encodes as bytes, with long fields truncated.
    pub(crate) fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let cut = |text: &str, most: usize| text.chars().take(most).filter(char::is_ascii).collect::<String>();
        let text = [&self.id.to_string(), &cut(&self.host, 64), &cut(&self.place, 90), &cut(&self.processors, 80)];
        let text = text.map(String::as_str).join("\n");
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Decodes [`bytes`](Self::bytes).
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut parts = text.trim_end_matches('\0').split('\n').map(str::to_owned);
        let mut part = || parts.next().unwrap_or_default();
        Self { id: part().parse().unwrap_or(0), host: part(), place: part(), processors: part() }
    }

    /// Describes the process for messages.
    pub(crate) fn describe(&self) -> String {
        format!("process {} on {}", self.id, self.host)
    }

    /// Returns true if both run on the same machine, on the same processors.
    pub(crate) fn shares_processors(&self, other: &Self) -> bool {
        (&self.place, &self.processors) == (&other.place, &other.processors)
    }

    /// Returns a handle that reports the end of the process; `None` on another machine, or if the system does not support it.
    pub(crate) fn watch(&self, from: &Self) -> Option<Watched> {
        if self.place != from.place || self.id == 0 || !cfg!(target_os = "linux") {
            return None;
        }
        // SAFETY: the call takes a process id and flags, and returns a new descriptor or -1.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, self.id as libc::pid_t, 0) };
        let descriptor = i32::try_from(descriptor).ok().filter(|&descriptor| descriptor >= 0)?;
        // SAFETY: the descriptor is new and has no other owner.
        Some(Watched(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

/// A watched process.
pub(crate) struct Watched(OwnedFd);

impl Watched {
    /// Returns `Died` once the process has ended.
    pub(crate) fn absence(&self) -> Option<Absence> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the array has one valid element, and the timeout is 0.
        let ready = unsafe { libc::poll(&mut poll, 1, 0) };
        (ready == 1 && poll.revents & libc::POLLIN != 0).then_some(Absence::Died)
    }
}
