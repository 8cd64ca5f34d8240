//! One connection between a rank and the hub: frames and file descriptors over a socket that never blocks. What frames mean does not belong here.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::message::{Incoming, Malformed, Message, frame};

/// Most file descriptors of one message (Linux, `SCM_MAX_FD`).
pub(crate) const MAX_DESCRIPTORS: usize = 253;
const CHUNK: usize = 16 << 10;

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the connection was closed")]
    Closed,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for Broken {
    fn from(error: Errno) -> Broken {
        match error {
            Errno::PIPE | Errno::CONNRESET => Broken::Closed,
            error => Broken::System(error.into()),
        }
    }
}

/// A message as it came, with its file descriptors.
pub(crate) struct Received {
    pub(crate) body: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// A frame that is sent, perhaps to many.
#[derive(Clone)]
pub(crate) struct Packet {
    bytes: Arc<[u8]>,
    descriptors: Arc<[OwnedFd]>,
}

impl Packet {
    pub(crate) fn new(message: &Message<'_>, descriptors: Vec<OwnedFd>) -> Packet {
        let count = u8::try_from(descriptors.len()).expect("at most MAX_DESCRIPTORS");
        Packet { bytes: frame(message, count).into(), descriptors: descriptors.into() }
    }
}

/// One end of a connection.
pub(crate) struct Link {
    socket: OwnedFd,
    incoming: Incoming,
    /// File descriptors that came before the last byte of their message.
    arrived: VecDeque<OwnedFd>,
    /// How many may be there.
    room: usize,
    outgoing: VecDeque<Packet>,
    /// Bytes of the first outgoing packet that are gone.
    sent: usize,
}

impl Link {
    /// Over a connected socket; bodies that come have at most `limit` bytes, and `room` file descriptors.
    pub(crate) fn new(socket: OwnedFd, limit: usize, room: usize) -> io::Result<Link> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let (arrived, outgoing) = (VecDeque::new(), VecDeque::new());
        Ok(Link { socket, incoming: Incoming::new(limit), arrived, room, outgoing, sent: 0 })
    }

    /// Changes how long bodies may be, and how many file descriptors they have.
    pub(crate) fn set_limit(&mut self, limit: usize, room: usize) {
        self.incoming.set_limit(limit);
        self.room = room;
    }

    /// Adds a packet to what is to be sent; [`Link::flush`] sends.
    pub(crate) fn send(&mut self, packet: Packet) {
        self.outgoing.push_back(packet);
    }

    /// Sends what the socket takes now. Whether all is sent.
    pub(crate) fn flush(&mut self) -> Result<bool, Broken> {
        while let Some(packet) = self.outgoing.front() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors: Vec<BorrowedFd<'_>> = packet.descriptors.iter().map(AsFd::as_fd).collect();
            // With the first byte, so that they are there before the last one.
            if self.sent == 0 && !descriptors.is_empty() {
                assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is space for MAX_DESCRIPTORS");
            }
            match sendmsg(&self.socket, &[IoSlice::new(&packet.bytes[self.sent..])], &mut control, SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if self.sent == packet.bytes.len() {
                self.outgoing.pop_front();
                self.sent = 0;
            }
        }
        Ok(true)
    }

    /// The next message, if it has come.
    pub(crate) fn receive(&mut self) -> Result<Option<Received>, Broken> {
        loop {
            if let Some(body) = self.incoming.take()? {
                let count = usize::from(body.descriptors);
                if count > self.arrived.len() {
                    return Err(Malformed::Body.into());
                }
                return Ok(Some(Received { body: body.bytes, descriptors: self.arrived.drain(..count).collect() }));
            }
            let mut chunk = [0; CHUNK];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC;
            let bytes = match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags) {
                Ok(received) => received.bytes,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    self.arrived.extend(descriptors);
                }
            }
            if self.arrived.len() > self.room {
                return Err(Malformed::Body.into());
            }
            if bytes == 0 {
                return Err(Broken::Closed);
            }
            self.incoming.push(&chunk[..bytes]);
        }
    }

    /// What to wait for.
    pub(crate) fn interest(&self) -> PollFd<'_> {
        let flags = if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        PollFd::new(&self.socket, flags)
    }

    /// Whether something is to be sent.
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Says that nothing more comes from here; what was sent still arrives.
    pub(crate) fn shut(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }
}

/// Waits for one of these, at most until `deadline`; for ever without one.
pub(crate) fn wait(interests: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let timeout = deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        // A wait of 0 just before the deadline would spin.
        Timespec { tv_sec: left.as_secs().min(1 << 30) as i64, tv_nsec: i64::from(left.subsec_nanos().max(1)) }
    });
    match poll(interests, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
