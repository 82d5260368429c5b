//! The processes of the ranks, and which of them are no more.

use grove_communicator::Absence;
use std::{
    fs,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process,
};

/// Bytes of a [`Process`] as it is sent.
pub(crate) const BYTES: usize = 256;

/// A rank's process.
pub(crate) struct Process {
    id: u32,
    host: String,
    /// Machine and space of process numbers, so that a number means the same process.
    place: String,
    /// The processors that it may run on.
    processors: String,
}

impl Process {
    /// This one.
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

    /// As bytes, what is too long cut.
    pub(crate) fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let cut = |text: &str, most: usize| text.chars().take(most).filter(char::is_ascii).collect::<String>();
        let text = [&self.id.to_string(), &cut(&self.host, 64), &cut(&self.place, 90), &cut(&self.processors, 80)];
        let text = text.map(String::as_str).join("\n");
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Reverses [`bytes`](Self::bytes).
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut parts = text.trim_end_matches('\0').split('\n').map(str::to_owned);
        let mut part = || parts.next().unwrap_or_default();
        Self { id: part().parse().unwrap_or(0), host: part(), place: part(), processors: part() }
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        format!("process {} on {}", self.id, self.host)
    }

    /// True if both run on the same machine, on the same processors.
    pub(crate) fn shares_processors(&self, other: &Self) -> bool {
        (&self.place, &self.processors) == (&other.place, &other.processors)
    }

    /// A handle that tells when the process ends; `None` on another machine, or where the system has none.
    pub(crate) fn watch(&self, from: &Self) -> Option<Watched> {
        if self.place != from.place || self.id == 0 || !cfg!(target_os = "linux") {
            return None;
        }
        // SAFETY: the call takes a number and flags, and returns a new descriptor or -1.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, self.id as libc::pid_t, 0) };
        let descriptor = i32::try_from(descriptor).ok().filter(|&descriptor| descriptor >= 0)?;
        // SAFETY: the descriptor is new, and nobody else has it.
        Some(Watched(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

/// A process that is watched.
pub(crate) struct Watched(OwnedFd);

impl Watched {
    /// `Died` once the process has ended.
    pub(crate) fn absence(&self) -> Option<Absence> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid element, and no time to wait.
        let ready = unsafe { libc::poll(&mut poll, 1, 0) };
        (ready == 1 && poll.revents & libc::POLLIN != 0).then_some(Absence::Died)
    }
}
