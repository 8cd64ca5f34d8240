//! What ranks and hub say to each other, and its form in bytes: bounded, and with a version.
//!
//! A frame is `MACO`, a version, the number of file descriptors that came along, two zeros, the length of the body, and the body: one message in postcard's
//! form. A reader knows how long a body may be before it takes any of it. Sockets do not belong here.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Of this form, and of the meaning of messages.
pub const VERSION: u8 = 1;
/// Bytes in front of a body.
pub const HEADER: usize = 12;
/// Longest body from or to somebody who has not proved to belong to the job.
pub const STRANGERS_LIMIT: usize = 512;
/// Longest name of an operation.
pub const LONGEST_OPERATION: usize = 256;
const MAGIC: [u8; 4] = *b"MACO";

/// One message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message<'a> {
    /// Hub: who are you? The nonce of this connection.
    Challenge {
        /// Random.
        nonce: [u8; 32],
    },
    /// A rank: I am this one.
    Hello {
        /// The rank.
        rank: u32,
        /// How many ranks it knows of.
        ranks: u32,
        /// Which group of the process this is to be, counted from 0.
        number: u32,
        /// Random.
        nonce: [u8; 32],
        /// That it has the token.
        proof: [u8; 32],
    },
    /// Hub: you belong to the job.
    Welcome {
        /// That the hub has the token.
        proof: [u8; 32],
    },
    /// Hub: you do not, since your proof is wrong.
    Stranger,
    /// A rank: my value for this operation, or why I have none.
    Round {
        /// What it is at.
        #[serde(borrow)]
        operation: &'a str,
        /// Its deadline, for words.
        deadline_ms: u64,
        /// What is left of it.
        left_ms: u64,
        /// The value.
        value: Result<&'a [u8], &'a str>,
    },
    /// Hub: the values of all ranks.
    Values {
        /// In the order of ranks.
        #[serde(borrow)]
        values: Vec<Result<&'a [u8], &'a str>>,
    },
    /// Hub: it is over.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// A rank: farewell.
    Leave,
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not `MACO`.
    #[error("what came is no message of MACO")]
    Magic,
    /// Another version.
    #[error("the other side speaks version {0} of the protocol, this one version {VERSION}")]
    Version(u8),
    /// Longer than it may be.
    #[error("a message of {found} bytes, at most {limit} are allowed here")]
    TooLong {
        /// How long it says it is.
        found: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A body that says nothing.
    #[error("a message that cannot be read")]
    Body,
}

/// The bytes of a frame that is sent with `descriptors` file descriptors.
pub fn frame(message: &Message<'_>, descriptors: u8) -> Vec<u8> {
    let mut header = vec![0; HEADER];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = VERSION;
    header[5] = descriptors;
    let mut bytes = postcard::to_extend(message, header).expect("messages have a form in postcard");
    let length = u32::try_from(bytes.len() - HEADER).expect("values are bounded");
    bytes[8..HEADER].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// The message of a body.
///
/// # Errors
/// When there is none, or more than one.
pub fn decode(body: &[u8]) -> Result<Message<'_>, Malformed> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(Malformed::Body),
    }
}

/// A body as it came.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    /// For [`decode`].
    pub bytes: Vec<u8>,
    /// How many file descriptors belong to it.
    pub descriptors: u8,
}

/// Bytes that have come and not been taken.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    limit: usize,
}

impl Incoming {
    /// Of somebody whose bodies are at most `limit` bytes long.
    pub fn new(limit: usize) -> Incoming {
        Incoming { bytes: Vec::new(), limit }
    }

    /// Changes how long bodies may be.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds what has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next body, if it is there.
    ///
    /// # Errors
    /// As soon as the bytes cannot become a frame.
    pub fn take(&mut self) -> Result<Option<Body>, Malformed> {
        let known = self.bytes.len().min(MAGIC.len());
        if self.bytes[..known] != MAGIC[..known] {
            return Err(Malformed::Magic);
        }
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let [_, _, _, _, version, descriptors, zeros @ .., l0, l1, l2, l3] = *header;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > self.limit {
            return Err(Malformed::TooLong { found: length, limit: self.limit });
        }
        if zeros != [0; 2] {
            return Err(Malformed::Magic);
        }
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(HEADER + length);
        let mut bytes = std::mem::replace(&mut self.bytes, rest);
        bytes.drain(..HEADER);
        Ok(Some(Body { bytes, descriptors }))
    }
}
