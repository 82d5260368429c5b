//! Ranks as threads of one process, for tests.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Absence, CommError, Exchange, Result, Transport, Words,
    error::Rank,
    transport::{Messages, Payload},
};

/// Sender, receiver and tag of a message.
type Address = (usize, usize, u16);

/// Posted messages, each with the rank that sent it.
type Posted = VecDeque<(usize, Arc<[u8]>)>;

/// Messages that were sent but not received.
#[derive(Default)]
struct Post {
    messages: HashMap<Address, Vec<Vec<u8>>>,
    absent: HashMap<usize, Absence>,
    /// Messages posted to each rank.
    posted: HashMap<usize, Posted>,
}

pub(crate) struct Threads {
    rank: usize,
    size: usize,
    post: Arc<Mutex<Post>>,
}

impl Threads {
    pub(crate) fn ranks(size: usize) -> Vec<Self> {
        let post = Arc::<Mutex<Post>>::default();
        (0..size).map(|rank| Self { rank, size, post: post.clone() }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let absence = if std::thread::panicking() { Absence::Died } else { Absence::Left };
        self.leave(absence);
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn process(&self, _: usize) -> Option<String> {
        None
    }

    fn start(&self, tag: u16, messages: Messages) -> Result<Box<dyn Exchange>> {
        let Messages { payload, outgoing, incoming } = messages;
        let mut post = self.lock();
        for (to, range) in outgoing.into_iter().enumerate() {
            if let Some(range) = range {
                let message = Payload::bytes(&*payload)[range].to_vec();
                post.messages.entry((self.rank, to, tag)).or_default().push(message);
            }
        }
        let received = incoming.iter().map(|_| Words::default()).collect();
        Ok(Box::new(Delivery { rank: self.rank, tag, incoming, received, post: self.post.clone() }))
    }

    fn post(&self, message: Arc<[u8]>) -> Result<()> {
        let mut post = self.lock();
        for to in (0..self.size).filter(|&to| to != self.rank) {
            post.posted.entry(to).or_default().push_back((self.rank, message.clone()));
        }
        Ok(())
    }

    fn delivered(&self) -> bool {
        true
    }

    fn receive(&self, most: usize) -> Result<Option<(usize, Vec<u8>)>> {
        let Some((from, message)) = self.lock().posted.get_mut(&self.rank).and_then(VecDeque::pop_front) else {
            return Ok(None);
        };
        match message.len() <= most {
            true => Ok(Some((from, message.to_vec()))),
            false => {
                Err(CommError::Transport(format!("rank {from} sent {} bytes; the maximum is {most}", message.len())))
            }
        }
    }

    fn absence(&self, rank: usize) -> Option<Absence> {
        self.lock().absent.get(&rank).copied()
    }

    fn leave(&self, absence: Absence) {
        self.lock().absent.entry(self.rank).or_insert(absence);
    }

    fn abort(&self, status: i32) -> ! {
        std::process::exit(status)
    }
}

/// Messages for one rank under one tag.
struct Delivery {
    rank: usize,
    tag: u16,
    /// Sizes of the messages that have not arrived.
    incoming: Vec<Option<usize>>,
    received: Vec<Words>,
    post: Arc<Mutex<Post>>,
}

impl Exchange for Delivery {
    fn poll(&mut self) -> Result<bool> {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        for (from, incoming) in self.incoming.iter_mut().enumerate() {
            let Some(expected) = *incoming else { continue };
            let Some(queue) = post.messages.get_mut(&(from, self.rank, self.tag)) else { continue };
            if queue.is_empty() {
                continue;
            }
            let message = queue.remove(0);
            if message.len() != expected {
                let (rank, collective) = (Rank { number: from, process: None }, String::new());
                return Err(CommError::OtherSize { collective, rank, found: message.len(), expected });
            }
            self.received[from] = Words::zeros(expected);
            self.received[from].bytes_mut().copy_from_slice(&message);
            *incoming = None;
        }
        Ok(self.incoming.iter().all(Option::is_none))
    }

    fn missing(&self) -> Vec<usize> {
        (0..self.incoming.len()).filter(|&from| self.incoming[from].is_some()).collect()
    }

    fn received(self: Box<Self>) -> Vec<Words> {
        self.received
    }
}
